package org.tensorflow.lite;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * An output of eight bytes, of which the first four are the float 1.5 and the int 0x3FC00000. As an
 * input or output of integers, it has the scale 0.5, and 100 plus its index as zero point.
 */
public final class Tensor {
  private final int index;

  Tensor(int index) {
    this.index = index;
  }

  /** Scale and zero point. */
  public static class QuantizationParams {
    private final float scale;
    private final int zeroPoint;

    QuantizationParams(float scale, int zeroPoint) {
      this.scale = scale;
      this.zeroPoint = zeroPoint;
    }

    public float getScale() {
      return scale;
    }

    public int getZeroPoint() {
      return zeroPoint;
    }
  }

  public QuantizationParams quantizationParams() {
    return new QuantizationParams(0.5f, 100 + index);
  }

  public ByteBuffer asReadOnlyBuffer() {
    ByteBuffer made = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
    made.putFloat(1.5f).putInt(index).flip();
    return made.asReadOnlyBuffer();
  }
}
