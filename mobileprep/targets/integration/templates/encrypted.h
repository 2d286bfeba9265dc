// Made by mobileprep: the next build replaces it.
#ifndef {{ encrypted_guard }}_
#define {{ encrypted_guard }}_

#include <cstdint>
#include <string>
{% if model.artifact != "tflite" %}

#include "tensorflow/core/lib/core/status.h"
#include "tensorflow/core/platform/protobuf.h"
{% endif %}

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}

// The bytes of a key.
constexpr int kModelKeyBytes = 32;

{% if model.artifact == "tflite" %}
// Decrypts a file that mobileprep encrypted: AES-256-GCM, by OpenSSL or BoringSSL. Returns an error
// message, or an empty string.
std::string DecryptModel(const std::string& encrypted, const std::uint8_t* key,
                         std::string* content);

// Reads and decrypts the file of that path. Returns an error message, or an empty string.
std::string ReadEncryptedModel(const std::string& path, const std::uint8_t* key,
                               std::string* content);
{% else %}
// Decrypts what mobileprep encrypted: AES-256-GCM, by OpenSSL or BoringSSL.
tensorflow::Status DecryptModel(const std::string& encrypted, const std::uint8_t* key,
                                std::string* content);

// Reads a message from an encrypted file, as tensorflow::ReadBinaryProto does from others.
tensorflow::Status ReadEncryptedProto(const std::string& path, const std::uint8_t* key,
                                      tensorflow::protobuf::MessageLite* proto);
{% endif %}

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

#endif  // {{ encrypted_guard }}_
