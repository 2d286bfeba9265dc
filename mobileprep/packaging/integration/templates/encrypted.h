// Made by mobileprep: the next build replaces it.
#ifndef {{ encrypted_guard }}_
#define {{ encrypted_guard }}_

#include <cstdint>
#include <string>

#include "tensorflow/core/lib/core/status.h"
#include "tensorflow/core/platform/protobuf.h"

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}

// The bytes of a key.
constexpr int kModelKeyBytes = 32;

// Decrypts what mobileprep encrypted: AES-256-GCM, by OpenSSL or BoringSSL.
tensorflow::Status DecryptModel(const std::string& encrypted, const std::uint8_t* key,
                                std::string* content);

// Reads a message from an encrypted file, as tensorflow::ReadBinaryProto does from others.
tensorflow::Status ReadEncryptedProto(const std::string& path, const std::uint8_t* key,
                                      tensorflow::protobuf::MessageLite* proto);

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

#endif  // {{ encrypted_guard }}_
