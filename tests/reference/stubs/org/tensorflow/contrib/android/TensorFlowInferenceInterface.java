package org.tensorflow.contrib.android;

import android.content.res.AssetManager;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The methods of TensorFlow 1.15's class; they note what they are called with. */
public class TensorFlowInferenceInterface {
  public static final List<String> CALLS = new ArrayList<>();
  public static byte[] graph = {};

  public TensorFlowInferenceInterface(AssetManager assets, String model) {
    CALLS.add("load " + model);
  }

  public TensorFlowInferenceInterface(InputStream stream) {
    try {
      graph = stream.readAllBytes();
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    CALLS.add("load " + graph.length + " bytes");
  }

  public void run(String[] outputs) {
    CALLS.add("run " + String.join(",", outputs));
  }

  public void run(String[] outputs, boolean stats, String[] targets) {
    CALLS.add("run " + String.join(",", outputs) + " " + stats + " " + String.join(",", targets));
  }

  public void close() {
    CALLS.add("close");
  }

  public void feed(String name, float[] values, long... dims) {
    CALLS.add("feed " + name + " " + Arrays.toString(values) + " " + Arrays.toString(dims));
  }

  public void feed(String name, double[] values, long... dims) {
    CALLS.add("feed " + name + " " + Arrays.toString(values) + " " + Arrays.toString(dims));
  }

  public void feed(String name, int[] values, long... dims) {
    CALLS.add("feed " + name + " " + Arrays.toString(values) + " " + Arrays.toString(dims));
  }

  public void feed(String name, long[] values, long... dims) {
    CALLS.add("feed " + name + " " + Arrays.toString(values) + " " + Arrays.toString(dims));
  }

  public void feed(String name, byte[] values, long... dims) {
    CALLS.add("feed " + name + " " + Arrays.toString(values) + " " + Arrays.toString(dims));
  }

  public void fetch(String name, float[] values) {
    CALLS.add("fetch " + name + " " + values.length);
  }

  public void fetch(String name, double[] values) {
    CALLS.add("fetch " + name + " " + values.length);
  }

  public void fetch(String name, int[] values) {
    CALLS.add("fetch " + name + " " + values.length);
  }

  public void fetch(String name, long[] values) {
    CALLS.add("fetch " + name + " " + values.length);
  }

  public void fetch(String name, byte[] values) {
    CALLS.add("fetch " + name + " " + values.length);
  }
}
