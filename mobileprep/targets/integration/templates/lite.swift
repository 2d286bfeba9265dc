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

{% if quantized_inputs or quantized_outputs %}
  /// A tensor without the scale and zero point that the model was built with.
  public struct NotQuantized: Error {
    public let index: Int
  }

{% endif %}
  private let interpreter: Interpreter
{% if model.encrypted %}
  // LiteRT reads the model from here as long as it runs, and the interpreter does not keep it.
  private let model: Data
{% endif %}
{% if quantized_inputs %}
  private let steps: [QuantizationParameters?]
{% endif %}
  private var fed: [Data?] = Array(repeating: nil, count: {{ inputs | length }})

{% if model.encrypted %}
  /// Loads the model from the path of such a file, which is encrypted with a key.
  public init(path: String, key: Data, delegates: [Delegate]? = nil) throws {
{% else %}
  /// Loads the model from the path of such a file.
  public init(path: String, delegates: [Delegate]? = nil) throws {
{% endif %}
    var options = Interpreter.Options()
{% if model.threads is not none %}
    options.threadCount = {{ model.threads }}
{% else %}
    options.threadCount = ProcessInfo.processInfo.activeProcessorCount
{% endif %}
{% if model.encrypted %}
    let model = try EncryptedModel.read(path: path, key: key)
    let interpreter = try Interpreter(modelData: model, options: options, delegates: delegates)
{% else %}
    let interpreter = try Interpreter(modelPath: path, options: options, delegates: delegates)
{% endif %}
{% if quantized_inputs %}
    // The scale of an input can be read only after this.
    try interpreter.allocateTensors()
    steps = try (0..<{{ inputs | length }}).map { try interpreter.input(at: $0).quantizationParameters }
{% endif %}
    self.interpreter = interpreter
{% if model.encrypted %}
    self.model = model
{% endif %}
  }

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if named.quantized %}
  /// Feeds values{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}, quantized by the scale and zero point of the file.
  public func feed{{ named.pascal }}(_ values: [Float]{% if named.open %}, shape: [Int]{% endif %}) throws {
    try feed{{ named.pascal }}(integers: quantized(values, input: {{ loop.index0 }}){% if named.open %}, shape: shape{% endif %})
  }

{% endif %}
{% if tensor.count is not none %}
  /// Feeds {{ tensor.count }} {{ named.fed }} of the shape [{{ tensor.shape | dims }}].
  public func feed{{ named.pascal }}({% if named.quantized %}integers{% else %}_{% endif %} values: [{{ named.swift }}]) throws {
    guard values.count == {{ tensor.count }} else {
      throw WrongCount(input: {{ tensor.name | swift }}, count: values.count)
    }
{% elif tensor.row is not none %}
  /// Feeds {{ named.fed }} of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample.
  public func feed{{ named.pascal }}({% if named.quantized %}integers{% else %}_{% endif %} values: [{{ named.swift }}]) throws {
    guard !values.isEmpty, values.count % {{ tensor.row }} == 0 else {
      throw WrongCount(input: {{ tensor.name | swift }}, count: values.count)
    }
    let shape = [values.count / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}]
    try interpreter.resizeInput(at: {{ loop.index0 }}, to: Tensor.Shape(shape))
{% else %}
  /// Feeds {{ named.fed }} of a shape.
  public func feed{{ named.pascal }}({% if named.quantized %}integers{% else %}_{% endif %} values: [{{ named.swift }}], shape: [Int]) throws {
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
{% if named.quantized %}
  /// Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}, computed from `quantized{{ named.pascal }}`.
  public func fetch{{ named.pascal }}() throws -> [Float] {
    guard let steps = try interpreter.output(at: {{ loop.index0 }}).quantizationParameters else {
      throw NotQuantized(index: {{ loop.index0 }})
    }
    return try quantized{{ named.pascal }}().map {
      Float(Double(Int($0) - steps.zeroPoint) * Double(steps.scale))
    }
  }

{% endif %}
  /// Fetches {% if named.quantized %}the quantized integers{% else %}values{% endif %}{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}.
  public func {% if named.quantized %}quantized{% else %}fetch{% endif %}{{ named.pascal }}() throws -> [{{ named.swift }}] {
    try interpreter.output(at: {{ loop.index0 }}).data.withUnsafeBytes {
      Array($0.bindMemory(to: {{ named.swift }}.self))
    }
  }

{% endfor %}
{% if quantized_inputs %}
  /// The nearest integers of an input; values out of range become the closest end.
  private func quantized<Integer: FixedWidthInteger>(
    _ values: [Float], input index: Int
  ) throws -> [Integer] {
    guard let steps = self.steps[index] else { throw NotQuantized(index: index) }
    let low = Double(Integer.min)
    let high = Double(Integer.max)
    return values.map { value in
      let nearest = (Double(value) / Double(steps.scale)).rounded(.toNearestOrEven)
      return Integer(max(low, min(high, nearest + Double(steps.zeroPoint))))
    }
  }

{% endif %}
{% if picture and picture.quantized %}
  /// The integers of a picture for `feed{{ picture.pascal }}(integers:)`: those of `pictureValues`, looked up in a
  /// table. The picture has the size that the model takes.
  public func pictureIntegers(rgb: [UInt8]) throws -> [{{ picture.swift }}] {
    var values: [Float] = []
    for value in 0..<256 {
{% for channel in channels %}
      values.append((Float(value) - {{ channel.mean | number }}) / {{ channel.std | number }})
{% endfor %}
    }
    let table: [{{ picture.swift }}] = try quantized(values, input: {{ picture_index }})
    var integers: [{{ picture.swift }}] = []
    integers.reserveCapacity(rgb.count / 3 * {{ channels | length }})
    for at in stride(from: 0, to: rgb.count - 2, by: 3) {
{% if pictures.channels == "grayscale" %}
      let luminance = Int(
        (0.299 * Float(rgb[at]) + 0.587 * Float(rgb[at + 1]) + 0.114 * Float(rgb[at + 2])).rounded())
{% endif %}
{% for channel in channels %}
      integers.append(table[{{ channel.swift_index }} * {{ channels | length }} + {{ loop.index0 }}])
{% endfor %}
    }
    return integers
  }

{% endif %}
{% if picture %}
  /// The values of a picture for `feed{{ picture.pascal }}`: of red, green and blue, row by row, each of 0 to
  /// 255. The picture has the size that the model takes.
  public static func pictureValues(rgb: [UInt8]) -> [{{ picture.picture_swift }}] {
    var values: [{{ picture.picture_swift }}] = []
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
