"""Code templates for running a model in an app: Java, Kotlin, C++, Objective-C++, Swift."""
