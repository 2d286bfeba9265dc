// Made by mobileprep: the next build replaces it.
#import "{{ class_name }}ObjC.h"

#include <cstring>

{% if model.encrypted %}
#include "EncryptedModel.h"
{% endif %}
#include "{{ class_name }}.h"
#include "tensorflow/core/lib/core/errors.h"

namespace {

using Model = {{ namespaced }}{{ class_name }};

// Whether a status is fine; where it is not, the error has its message.
BOOL Passed(const tensorflow::Status& status, NSError** error) {
  if (status.ok()) return YES;
  if (error != nullptr) {
    NSString* message = [NSString stringWithUTF8String:status.ToString().c_str()];
    if (message == nil) message = @"TensorFlow failed";
    *error = [NSError errorWithDomain:@"org.tensorflow"
                                 code:static_cast<NSInteger>(status.code())
                             userInfo:@{NSLocalizedDescriptionKey : message}];
  }
  return NO;
}

tensorflow::Status FromData(NSData* data, NSArray<NSNumber*>* shape, tensorflow::DataType type,
                            tensorflow::Tensor* tensor) {
  tensorflow::TensorShape sizes;
  for (NSNumber* size in shape) sizes.AddDim([size longLongValue]);
  *tensor = tensorflow::Tensor(type, sizes);
  const auto bytes = tensor->tensor_data();
  if (bytes.size() != [data length]) {
    return tensorflow::errors::InvalidArgument("takes ", bytes.size(), " bytes, not ",
                                               static_cast<tensorflow::uint64>([data length]));
  }
  std::memcpy(const_cast<char*>(bytes.data()), [data bytes], bytes.size());
  return tensorflow::Status();
}

NSData* ToData(const tensorflow::Tensor& tensor) {
  const auto bytes = tensor.tensor_data();
  return [NSData dataWithBytes:bytes.data() length:bytes.size()];
}

NSString* InBundle(const char* file, NSError** error) {
  NSString* name = [NSString stringWithUTF8String:file];
  NSString* path = [[NSBundle mainBundle] pathForResource:name ofType:nil];
  if (path == nil) Passed(tensorflow::errors::NotFound("the bundle has no ", file), error);
  return path;
}

}  // namespace

@implementation {{ class_name }}ObjC {
  std::unique_ptr<Model> _model;
}

+ (instancetype)modelFromPath:(NSString *)path{% if model.encrypted %} key:(NSData *)key{% endif %} error:(NSError **)error {
  {{ class_name }}ObjC *made = [[self alloc] init];
{% if model.encrypted %}
  if ([key length] != {{ namespaced }}kModelKeyBytes) {
    Passed(tensorflow::errors::InvalidArgument("a key has 32 bytes"), error);
    return nil;
  }
  const auto* bytes = static_cast<const std::uint8_t*>([key bytes]);
  if (!Passed(Model::Load([path UTF8String], bytes, &made->_model), error)) return nil;
{% else %}
  if (!Passed(Model::Load([path UTF8String], &made->_model), error)) return nil;
{% endif %}
  return made;
}

+ (instancetype)modelFromBundleWith{% if model.encrypted %}Key:(NSData *)key error{% else %}Error{% endif %}:(NSError **)error {
  NSString *path = InBundle(Model::kModelFile, error);
  return path == nil ? nil : [self modelFromPath:path{% if model.encrypted %} key:key{% endif %} error:error];
}

- (NSArray<NSData *> *)run
{%- for named in inputs %}
{% if loop.first %}With{% else %} with{% endif %}{{ named.pascal }}:(NSData *){{ named.camel }} shape:(NSArray<NSNumber *> *){{ named.camel }}Shape
{%- endfor %}
 error:(NSError **)error {
{% for named in inputs %}
  tensorflow::Tensor {{ named.snake }};
  if (!Passed(FromData({{ named.camel }}, {{ named.camel }}Shape, tensorflow::{{ named.enum }}, &{{ named.snake }}), error)) return nil;
{% endfor %}
  tensorflow::Tensor {% for named in outputs %}{{ named.snake }}{% if not loop.last %}, {% endif %}{% endfor %};
  if (!Passed(_model->Run({% for named in inputs %}{{ named.snake }}, {% endfor %}{% for named in outputs %}&{{ named.snake }}{% if not loop.last %}, {% endif %}{% endfor %}), error)) return nil;
  return @[ {% for named in outputs %}ToData({{ named.snake }}){% if not loop.last %}, {% endif %}{% endfor %} ];
}
{% if picture %}

+ (NSData *)pictureFromRGB:(const uint8_t *)rgb height:(int)height width:(int)width {
  return ToData(Model::Picture(rgb, height, width));
}
{% endif %}
{% if model.labels %}

+ (NSArray<NSString *> *)labelsWithError:(NSError **)error {
  NSString *path = InBundle(Model::kLabelsFile, error);
  if (path == nil) return nil;
  std::vector<std::string> read;
  if (!Passed(Model::ReadLabels([path UTF8String], &read), error)) return nil;
  NSMutableArray<NSString *> *labels = [NSMutableArray array];
  for (const std::string& label : read) {
    NSString *text = [NSString stringWithUTF8String:label.c_str()];
    [labels addObject:text == nil ? @"" : text];
  }
  return labels;
}
{% endif %}

@end
