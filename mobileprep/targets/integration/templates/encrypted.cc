// Made by mobileprep: the next build replaces it.
#include "EncryptedModel.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
{% if model.artifact == "tflite" %}
#include <fstream>
#include <iterator>
{% endif %}
#include <limits>
#include <memory>
{% if model.artifact != "tflite" %}

#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/platform/env.h"
{% endif %}

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}
namespace {

constexpr std::uint8_t kMagic[] = {{ magic }};
constexpr std::size_t kLengthAt = 16, kKeyIdAt = 24, kSyntheticAt = 40;
constexpr std::size_t kKeyIdBytes = 16, kSyntheticBytes = 32;
constexpr std::size_t kHeaderBytes = 72, kTagBytes = 16, kDigestBytes = 32;
constexpr int kNonceBytes = 12;

std::uint64_t LittleEndian(const std::uint8_t* bytes, int count) {
  std::uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

// HKDF-Expand with SHA-256 (RFC 5869) of one block.
bool Derive(const std::uint8_t* key, const char* purpose, const std::string& context,
            std::uint8_t* derived) {
  std::string info = "mobileprep 1 ";
  info += purpose;
  info.push_back('\0');
  info += context;
  info.push_back('\1');
  unsigned int length = 0;
  return HMAC(EVP_sha256(), key, kModelKeyBytes,
              reinterpret_cast<const unsigned char*>(info.data()), info.size(), derived,
              &length) != nullptr &&
         length == kDigestBytes;
}

// Whether the bytes are what was encrypted; the content is that then.
bool Open(const std::uint8_t* data, std::size_t length, const std::uint8_t* key,
          const std::uint8_t* nonce, std::string* content) {
  std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(EVP_CIPHER_CTX_new(),
                                                                         EVP_CIPHER_CTX_free);
  if (!context ||
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_IVLEN, kNonceBytes, nullptr) != 1 ||
      EVP_DecryptInit_ex(context.get(), nullptr, nullptr, key, nonce) != 1) {
    return false;
  }
  int written = 0;
  if (EVP_DecryptUpdate(context.get(), nullptr, &written, data, kHeaderBytes) != 1) return false;
  content->resize(length);
  // The content of an empty text is no place to write to.
  std::uint8_t none = 0;
  auto* out = length == 0 ? &none : reinterpret_cast<std::uint8_t*>(&(*content)[0]);
  const std::uint8_t* tag = data + kHeaderBytes + length;
  return EVP_DecryptUpdate(context.get(), out, &written, data + kHeaderBytes,
                           static_cast<int>(length)) == 1 &&
         EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                             const_cast<std::uint8_t*>(tag)) == 1 &&
         EVP_DecryptFinal_ex(context.get(), out + written, &written) == 1;
}

}  // namespace

{{ failures.type }} DecryptModel(const std::string& encrypted, const std::uint8_t* key,
                                std::string* content) {
  content->clear();
  const auto* data = reinterpret_cast<const std::uint8_t*>(encrypted.data());
  const std::size_t size = encrypted.size();
  if (size < sizeof(kMagic) || std::memcmp(data, kMagic, sizeof(kMagic)) != 0) {
    return {{ failures.DataLoss }}("this is no encrypted model");
  }
  if (size < kHeaderBytes + kTagBytes) {
    return {{ failures.DataLoss }}("the encrypted model was cut short");
  }
  if (LittleEndian(data + 8, 4) != 1 || LittleEndian(data + 12, 4) != kHeaderBytes) {
    return {{ failures.Unimplemented }}("another version of the format of encrypted models");
  }
  const std::size_t length = size - kHeaderBytes - kTagBytes;
  if (LittleEndian(data + kLengthAt, 8) != length ||
      length > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return {{ failures.DataLoss }}("the encrypted model was cut short");
  }
  const std::string synthetic(encrypted, kSyntheticAt, kSyntheticBytes);
  std::uint8_t key_id[kDigestBytes], model_key[kDigestBytes], nonce[kDigestBytes];
  if (!Derive(key, "key id", "", key_id) || !Derive(key, "model", synthetic, model_key) ||
      !Derive(key, "nonce", synthetic, nonce)) {
    return {{ failures.Internal }}("HMAC-SHA256 failed");
  }
  if (std::memcmp(key_id, data + kKeyIdAt, kKeyIdBytes) != 0) {
    return {{ failures.InvalidArgument }}("the model is encrypted with another key");
  }
  if (!Open(data, length, model_key, nonce, content)) {
    content->clear();
    return {{ failures.DataLoss }}("the encrypted model was changed");
  }
  return {{ failures.type }}();
}

{% if model.artifact == "tflite" %}
std::string ReadEncryptedModel(const std::string& path, const std::uint8_t* key,
                               std::string* content) {
  content->clear();
  std::ifstream file(path, std::ios::binary);
  const std::string encrypted((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
  if (!file) return "the file " + path + " cannot be read";
  return DecryptModel(encrypted, key, content);
}
{% else %}
tensorflow::Status ReadEncryptedProto(const std::string& path, const std::uint8_t* key,
                                      tensorflow::protobuf::MessageLite* proto) {
  std::string encrypted, content;
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(tensorflow::Env::Default(), path, &encrypted));
  TF_RETURN_IF_ERROR(DecryptModel(encrypted, key, &content));
  if (!tensorflow::ParseProtoUnlimited(proto, content)) {
    return tensorflow::errors::DataLoss("the encrypted model holds no such message");
  }
  return tensorflow::Status();
}
{% endif %}

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}
