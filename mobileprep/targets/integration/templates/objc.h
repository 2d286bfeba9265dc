// Made by mobileprep: the next build replaces it.
#import <Foundation/Foundation.h>

// Runs the model; any number of threads may do so at once.
@interface {{ class_name }}ObjC : NSObject

// Loads the model from a file; nil with an error where that fails.
{% if model.encrypted %}
// The key has 32 bytes.
{% endif %}
+ (instancetype)modelFromPath:(NSString *)path{% if model.encrypted %} key:(NSData *)key{% endif %} error:(NSError **)error;

// Loads the model from the app's main bundle.
+ (instancetype)modelFromBundleWith{% if model.encrypted %}Key:(NSData *)key error{% else %}Error{% endif %}:(NSError **)error;

// Runs the model; the outputs' elements in the order of the outputs, or nil with an error.
{% for named in inputs %}
//   {{ named.camel }}: elements of {{ named.enum }}, as they lie in memory{% if named.tensor.shape is not none %}, of the shape [{{ named.tensor.shape | dims }}]{% endif %}

{% endfor %}
// Shapes are lists of sizes, all of them known.
- (NSArray<NSData *> *)run
{%- for named in inputs %}
{% if loop.first %}With{% else %} with{% endif %}{{ named.pascal }}:(NSData *){{ named.camel }} shape:(NSArray<NSNumber *> *){{ named.camel }}Shape
{%- endfor %}
 error:(NSError **)error;
{% if picture %}

// The elements of a picture for {{ picture.camel }}, of red, green and blue, row by row, each of 0 to 255.
+ (NSData *)pictureFromRGB:(const uint8_t *)rgb height:(int)height width:(int)width;
{% endif %}
{% if model.labels %}

// The names of the classes in the order of the outputs, from the app's main bundle.
+ (NSArray<NSString *> *)labelsWithError:(NSError **)error;
{% endif %}

@end
