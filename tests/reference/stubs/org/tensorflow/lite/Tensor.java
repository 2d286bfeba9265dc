package org.tensorflow.lite;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** An output of eight bytes, of which the first four are the float 1.5 and the int 0x3FC00000. */
public final class Tensor {
  private final int index;

  Tensor(int index) {
    this.index = index;
  }

  public ByteBuffer asReadOnlyBuffer() {
    ByteBuffer made = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
    made.putFloat(1.5f).putInt(index).flip();
    return made.asReadOnlyBuffer();
  }
}
