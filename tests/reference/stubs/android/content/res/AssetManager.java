package android.content.res;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Paths;

/** As much of Android's class as the code for apps calls: assets are files of the folder. */
public final class AssetManager {
  public InputStream open(String name) throws IOException {
    return Files.newInputStream(Paths.get(name));
  }

  public AssetFileDescriptor openFd(String name) throws IOException {
    return new AssetFileDescriptor(Paths.get(name).toFile());
  }
}
