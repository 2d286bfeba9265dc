// As much of Apple's XCTest as the benchmark refers to, for compilers elsewhere.
#pragma once
#include <Foundation/Foundation.h>

@interface XCTestCase : NSObject
@end

void StubFailure(NSString *format, ...);
#define XCTAssertTrue(value, ...) ((value) ? (void)0 : StubFailure(__VA_ARGS__))
#define XCTAssertNotNil(value, ...) ((value) != nil ? (void)0 : StubFailure(__VA_ARGS__))
