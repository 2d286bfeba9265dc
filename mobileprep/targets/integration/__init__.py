"""The code by which an app runs its model, from templates: Java, Kotlin, C++, Objective-C++."""
