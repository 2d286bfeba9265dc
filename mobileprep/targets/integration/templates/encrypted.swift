// Made by mobileprep: the next build replaces it.
import CryptoKit
import Foundation

/// Decrypts a file that mobileprep encrypted: AES-256-GCM, by CryptoKit.
public enum EncryptedModel {
  /// The bytes of a key.
  public static let keyBytes = 32

  /// The reason why a file cannot be decrypted.
  public struct Failure: LocalizedError {
    public let errorDescription: String?

    fileprivate init(_ message: String) {
      errorDescription = message
    }
  }

  private static let magic: [UInt8] = [
{%- for byte in magic_bytes %}{{ byte }}{% if not loop.last %}, {% endif %}{% endfor %}
]
  private static let headerBytes = 72
  private static let tagBytes = 16
  private static let keyIdBytes = 16
  private static let syntheticBytes = 32
  private static let nonceBytes = 12

  /// The content of the encrypted file of that path.
  public static func read(path: String, key: Data) throws -> Data {
    try decrypt(Data(contentsOf: URL(fileURLWithPath: path)), key: key)
  }

  /// The content of an encrypted file.
  ///
  /// - Parameters:
  ///   - file: All of its bytes.
  ///   - key: The key, of `keyBytes` bytes.
  /// - Throws: `Failure` if it is another file, was changed or cut short, or has another key.
  public static func decrypt(_ file: Data, key: Data) throws -> Data {
    guard key.count == keyBytes else { throw Failure("a key has \(keyBytes) bytes") }
    guard file.count >= magic.count, file.prefix(magic.count).elementsEqual(magic) else {
      throw Failure("this is no encrypted model")
    }
    guard file.count >= headerBytes + tagBytes else {
      throw Failure("the encrypted model was cut short")
    }
    let header = file.prefix(headerBytes)
    guard number(header, at: 8, bytes: 4) == 1,
      number(header, at: 12, bytes: 4) == UInt64(headerBytes)
    else {
      throw Failure("another version of the format of encrypted models")
    }
    guard number(header, at: 16, bytes: 8) == UInt64(file.count - headerBytes - tagBytes) else {
      throw Failure("the encrypted model was cut short")
    }
    let keyId = header.dropFirst(24).prefix(keyIdBytes)
    guard keyId.elementsEqual(derived(key, "key id", Data()).prefix(keyIdBytes)) else {
      throw Failure("the model is encrypted with another key")
    }
    let synthetic = Data(header.suffix(syntheticBytes))
    let modelKey = SymmetricKey(data: derived(key, "model", synthetic))
    let nonce = try AES.GCM.Nonce(data: derived(key, "nonce", synthetic).prefix(nonceBytes))
    let box = try AES.GCM.SealedBox(
      nonce: nonce,
      ciphertext: file.dropFirst(headerBytes).dropLast(tagBytes),
      tag: file.suffix(tagBytes))
    do {
      return try AES.GCM.open(box, using: modelKey, authenticating: header)
    } catch {
      throw Failure("the encrypted model was changed")
    }
  }

  private static func number(_ header: Data, at offset: Int, bytes: Int) -> UInt64 {
    header.dropFirst(offset).prefix(bytes).reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// HKDF-Expand with SHA-256 (RFC 5869) of one block.
  private static func derived(_ key: Data, _ purpose: String, _ context: Data) -> Data {
    var info = Data("mobileprep 1 ".utf8)
    info.append(contentsOf: purpose.utf8)
    info.append(0)
    info.append(context)
    info.append(1)
    return Data(HMAC<SHA256>.authenticationCode(for: info, using: SymmetricKey(data: key)))
  }
}
