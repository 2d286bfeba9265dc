// Made by mobileprep: the next build replaces it.
package {{ package }};

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.Mac;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** Decrypts what mobileprep encrypted: AES-256-GCM, by javax.crypto. */
public final class EncryptedModel {
  /** The bytes of a key. */
  public static final int KEY_BYTES = 32;

  private static final byte[] MAGIC = {
{%- for byte in magic_bytes %}(byte) {{ byte }}{% if not loop.last %}, {% endif %}{% endfor %}
};
  private static final int HEADER_BYTES = 72;
  private static final int TAG_BYTES = 16;
  private static final int KEY_ID_BYTES = 16;
  private static final int SYNTHETIC_BYTES = 32;
  private static final int NONCE_BYTES = 12;

  private EncryptedModel() {}

  /**
   * The content of an encrypted file.
   *
   * @param file all of its bytes.
   * @param key of {@link #KEY_BYTES} bytes.
   * @throws GeneralSecurityException where it is no such file, was changed or cut short, or has
   *     another key.
   */
  public static byte[] decrypt(byte[] file, byte[] key) throws GeneralSecurityException {
    if (key.length != KEY_BYTES) {
      throw new GeneralSecurityException("a key has " + KEY_BYTES + " bytes");
    }
    if (file.length < MAGIC.length || !Arrays.equals(MAGIC, Arrays.copyOf(file, MAGIC.length))) {
      throw new GeneralSecurityException("this is no encrypted model");
    }
    if (file.length < HEADER_BYTES + TAG_BYTES) {
      throw new GeneralSecurityException("the encrypted model was cut short");
    }
    ByteBuffer header = ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN);
    header.position(MAGIC.length);
    if (header.getInt() != 1 || header.getInt() != HEADER_BYTES) {
      throw new GeneralSecurityException("another version of the format of encrypted models");
    }
    if (header.getLong() != file.length - HEADER_BYTES - TAG_BYTES) {
      throw new GeneralSecurityException("the encrypted model was cut short");
    }
    byte[] keyId = new byte[KEY_ID_BYTES];
    header.get(keyId);
    byte[] synthetic = new byte[SYNTHETIC_BYTES];
    header.get(synthetic);
    byte[] wanted = Arrays.copyOf(derive(key, "key id", new byte[0]), KEY_ID_BYTES);
    if (!MessageDigest.isEqual(keyId, wanted)) {
      throw new GeneralSecurityException("the model is encrypted with another key");
    }
    byte[] nonce = Arrays.copyOf(derive(key, "nonce", synthetic), NONCE_BYTES);
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    SecretKeySpec modelKey = new SecretKeySpec(derive(key, "model", synthetic), "AES");
    cipher.init(Cipher.DECRYPT_MODE, modelKey, new GCMParameterSpec(8 * TAG_BYTES, nonce));
    cipher.updateAAD(Arrays.copyOf(file, HEADER_BYTES));
    try {
      return cipher.doFinal(file, HEADER_BYTES, file.length - HEADER_BYTES);
    } catch (AEADBadTagException error) {
      throw new GeneralSecurityException("the encrypted model was changed", error);
    }
  }

  /** The content of an encrypted file, from a stream that is read to its end and closed. */
  public static byte[] read(InputStream stream, byte[] key)
      throws IOException, GeneralSecurityException {
    try (InputStream input = stream) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      byte[] buffer = new byte[1 << 16];
      for (int count = input.read(buffer); count >= 0; count = input.read(buffer)) {
        bytes.write(buffer, 0, count);
      }
      return decrypt(bytes.toByteArray(), key);
    }
  }

  /** HKDF-Expand with SHA-256 (RFC 5869) of one block. */
  private static byte[] derive(byte[] key, String purpose, byte[] context)
      throws GeneralSecurityException {
    Mac mac = Mac.getInstance("HmacSHA256");
    mac.init(new SecretKeySpec(key, "HmacSHA256"));
    for (char letter : ("mobileprep 1 " + purpose).toCharArray()) {
      mac.update((byte) letter);
    }
    mac.update((byte) 0);
    mac.update(context);
    return mac.doFinal(new byte[] {1});
  }
}
