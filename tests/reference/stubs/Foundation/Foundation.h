// As much of Apple's Foundation as the code for apps refers to, for compilers elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>

typedef signed char BOOL;
typedef long NSInteger;
typedef unsigned long NSUInteger;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil ((id)0)

__attribute__((objc_root_class)) @interface NSObject
+ (instancetype)alloc;
- (instancetype)init;
- (Class)class;
@end

@protocol NSCopying
@end

@interface NSString : NSObject <NSCopying>
+ (instancetype)stringWithUTF8String:(const char *)text;
- (const char *)UTF8String;
@end

@interface NSNumber : NSObject
+ (NSNumber *)numberWithInt:(int)value;
+ (NSNumber *)numberWithFloat:(float)value;
- (int)intValue;
- (long long)longLongValue;
@end

@interface NSArray<Item> : NSObject
+ (instancetype)arrayWithObjects:(const Item[])items count:(NSUInteger)count;
- (NSUInteger)count;
- (unsigned long)countByEnumeratingWithState:(struct NSFastEnumerationState *)state
                                     objects:(id *)items
                                       count:(unsigned long)count;
@end

@interface NSMutableArray<Item> : NSArray <Item>
+ (instancetype)array;
- (void)addObject:(Item)item;
@end

@interface NSDictionary<Key, Value> : NSObject
+ (instancetype)dictionaryWithObjects:(const Value[])values
                              forKeys:(const id<NSCopying>[])keys
                                count:(NSUInteger)count;
@end

@interface NSData : NSObject
+ (instancetype)dataWithBytes:(const void *)bytes length:(NSUInteger)length;
- (const void *)bytes;
- (NSUInteger)length;
@end

@interface NSError : NSObject
+ (instancetype)errorWithDomain:(NSString *)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary<NSString *, id> *)userInfo;
@end

@interface NSBundle : NSObject
+ (NSBundle *)mainBundle;
+ (NSBundle *)bundleForClass:(Class)type;
- (NSString *)pathForResource:(NSString *)name ofType:(NSString *)type;
@end

@interface NSProcessInfo : NSObject
+ (NSProcessInfo *)processInfo;
- (NSString *)operatingSystemVersionString;
@end

extern NSString *const NSLocalizedDescriptionKey;
