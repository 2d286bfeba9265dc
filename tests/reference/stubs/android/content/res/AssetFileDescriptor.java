package android.content.res;

import java.io.Closeable;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;

/** A file of the folder, all of it. */
public final class AssetFileDescriptor implements Closeable {
  private final File file;

  AssetFileDescriptor(File file) {
    this.file = file;
  }

  public FileInputStream createInputStream() throws IOException {
    return new FileInputStream(file);
  }

  public long getStartOffset() {
    return 0;
  }

  public long getDeclaredLength() {
    return file.length();
  }

  @Override
  public void close() {}
}
