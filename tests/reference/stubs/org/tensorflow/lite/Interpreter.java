package org.tensorflow.lite;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.MappedByteBuffer;
import java.nio.ShortBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** As much of LiteRT's class as the code for apps calls; its methods note what they are called with. */
public final class Interpreter implements AutoCloseable {
  public static final List<String> CALLS = new ArrayList<>();

  /** What an interpreter is made with. */
  public static class Options {
    public Options setNumThreads(int threads) {
      CALLS.add("threads " + threads);
      return this;
    }
  }

  /** The model as it is in memory when the interpreter runs. */
  public static byte[] loaded = {};

  private final ByteBuffer model;

  public Interpreter(ByteBuffer model, Options options) {
    // As the original does.
    if (!model.isDirect() || model.order() != ByteOrder.nativeOrder() && !(model instanceof MappedByteBuffer)) {
      throw new IllegalArgumentException("not a direct buffer in native order");
    }
    this.model = model;
    CALLS.add("load " + model.remaining() + " bytes");
  }

  public void resizeInput(int index, int[] shape) {
    CALLS.add("resize " + index + " " + Arrays.toString(shape));
  }

  public void runForMultipleInputsOutputs(Object[] inputs, Map<Integer, Object> outputs) {
    for (Object input : inputs) {
      CALLS.add("feed " + shown((Buffer) input));
    }
    loaded = new byte[model.capacity()];
    model.duplicate().get(loaded);
    CALLS.add("run " + outputs);
  }

  public Tensor getInputTensor(int index) {
    return new Tensor(index);
  }

  public Tensor getOutputTensor(int index) {
    return new Tensor(index);
  }

  public void close() {
    CALLS.add("close");
  }

  private static String shown(Buffer values) {
    if (values instanceof FloatBuffer) {
      return Arrays.toString(((FloatBuffer) values).array());
    }
    if (values instanceof IntBuffer) {
      return Arrays.toString(((IntBuffer) values).array());
    }
    if (values instanceof ByteBuffer) {
      return Arrays.toString(((ByteBuffer) values).array());
    }
    if (values instanceof ShortBuffer) {
      return Arrays.toString(((ShortBuffer) values).array());
    }
    return Arrays.toString(((LongBuffer) values).array());
  }
}
