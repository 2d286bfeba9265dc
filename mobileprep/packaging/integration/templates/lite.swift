// Made by mobileprep: the next build replaces it.
import Foundation
import TensorFlowLite

/// Runs the model: feed every input, then `run`, then fetch. For one thread at a time.
public final class {{ class_name }} {
  /// The model file, among the app's resources.
  public static let modelFile = {{ model.file | swift }}
{% if model.labels %}
  /// The names of the classes in the order of the outputs, one a line, among the app's resources.
  public static let labelsFile = {{ model.labels | swift }}
{% endif %}

  /// Values that are not as many as an input takes.
  public struct WrongCount: Error {
    public let input: String
    public let count: Int
  }

  private let interpreter: Interpreter
  private var fed: [Data?] = Array(repeating: nil, count: {{ inputs | length }})

  /// Loads the model from the path of such a file.
  public init(path: String, delegates: [Delegate]? = nil) throws {
    var options = Interpreter.Options()
{% if model.threads is not none %}
    options.threadCount = {{ model.threads }}
{% else %}
    options.threadCount = ProcessInfo.processInfo.activeProcessorCount
{% endif %}
    interpreter = try Interpreter(modelPath: path, options: options, delegates: delegates)
  }

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
  /// Feeds {{ tensor.count }} values of the shape [{{ tensor.shape | dims }}].
  public func feed{{ named.pascal }}(_ values: [{{ named.swift }}]) throws {
    guard values.count == {{ tensor.count }} else {
      throw WrongCount(input: {{ tensor.name | swift }}, count: values.count)
    }
{% elif tensor.row is not none %}
  /// Feeds values of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample.
  public func feed{{ named.pascal }}(_ values: [{{ named.swift }}]) throws {
    guard !values.isEmpty, values.count % {{ tensor.row }} == 0 else {
      throw WrongCount(input: {{ tensor.name | swift }}, count: values.count)
    }
    let shape = [values.count / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}]
    try interpreter.resizeInput(at: {{ loop.index0 }}, to: Tensor.Shape(shape))
{% else %}
  /// Feeds values of a shape.
  public func feed{{ named.pascal }}(_ values: [{{ named.swift }}], shape: [Int]) throws {
    try interpreter.resizeInput(at: {{ loop.index0 }}, to: Tensor.Shape(shape))
{% endif %}
    fed[{{ loop.index0 }}] = values.withUnsafeBufferPointer { Data(buffer: $0) }
  }

{% endfor %}
  /// Runs the model on what was fed.
  public func run() throws {
    try interpreter.allocateTensors()
    for (index, data) in fed.enumerated() {
      if let data = data {
        try interpreter.copy(data, toInputAt: index)
      }
    }
    try interpreter.invoke()
  }

{% for named in outputs %}
  /// Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}.
  public func fetch{{ named.pascal }}() throws -> [{{ named.swift }}] {
    try interpreter.output(at: {{ loop.index0 }}).data.withUnsafeBytes {
      Array($0.bindMemory(to: {{ named.swift }}.self))
    }
  }

{% endfor %}
{% if picture %}
  /// The values of a picture for `feed{{ picture.pascal }}`: of red, green and blue, row by row, each of 0 to
  /// 255. The picture has the size that the model takes.
  public static func pictureValues(rgb: [UInt8]) -> [{{ picture.swift }}] {
    var values: [{{ picture.swift }}] = []
    values.reserveCapacity(rgb.count / 3 * {{ channels | length }})
    for at in stride(from: 0, to: rgb.count - 2, by: 3) {
{% if pictures.channels == "grayscale" %}
      let luminance =
        (0.299 * Float(rgb[at]) + 0.587 * Float(rgb[at + 1]) + 0.114 * Float(rgb[at + 2])).rounded()
{% endif %}
{% for channel in channels %}
{% if picture.tensor.dtype.name == "FLOAT" %}
      values.append(({{ channel.swift }} - {{ channel.mean | number }}) / {{ channel.std | number }})
{% else %}
      values.append(
        UInt8(max(0, min(255, (({{ channel.swift }} - {{ channel.mean | number }}) / {{ channel.std | number }}).rounded(.toNearestOrEven)))))
{% endif %}
{% endfor %}
    }
    return values
  }

{% endif %}
{% if model.labels %}
  /// Reads the names of the classes from the path of such a file.
  public static func readLabels(path: String) throws -> [String] {
    let text = try String(contentsOfFile: path, encoding: .utf8)
    return text.split(separator: "\n").map(String.init)
  }
{% endif %}
}
