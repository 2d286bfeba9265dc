  /// A decoded sequence of labels, and {% if ctc.method == "greedy" %}the negated sum of the largest logits{% else %}the logarithm of its probability{% endif %}.
  public struct Decoded {
    public let labels: [Int]
    public let score: Float
  }

  /// Decodes the logits [steps, batch, {{ ctc_classes }}], as TensorFlow does: {% if ctc.top_paths > 1 %}{{ ctc.top_paths }} sequences{% else %}one sequence{% endif %} for each batch
  /// entry{% if ctc.method != "greedy" %}, likeliest first{% endif %}. {% if ctc.fixed_lengths %}The number of steps of each entry is that of the training graph.{% else %}The lengths are the numbers of steps of the entries.{% endif %} Returns
  /// nothing if the sizes do not fit.
  public static func decode(_ logits: [Float]{% if not ctc.fixed_lengths %}, lengths: [Int]{% endif %}) -> [[Decoded]] {
{% if ctc.fixed_lengths %}
    let lengths = [{{ ctc.fixed_lengths | dims }}]
{% endif %}
    let row = lengths.count * {{ ctc_classes }}
    guard row > 0, logits.count % row == 0 else { return [] }
    guard lengths.allSatisfy({ $0 <= logits.count / row }) else { return [] }
    return lengths.enumerated().map { entry, length in
{% if ctc.method == "greedy" %}
      var labels: [Int] = []
      var score: Float = 0
{% if ctc.merge_repeated %}
      var previous = -1
{% endif %}
      for step in 0..<max(0, length) {
        let at = step * row + entry * {{ ctc_classes }}
        var label = 0
        for c in 1..<{{ ctc_classes }} where logits[at + c] > logits[at + label] { label = c }
        score -= logits[at + label]
        if label != {{ ctc_blank }}{% if ctc.merge_repeated %} && label != previous{% endif %} { labels.append(label) }
{% if ctc.merge_repeated %}
        previous = label
{% endif %}
      }
      return [Decoded(labels: labels, score: score)]
{% else %}
      var search = CtcSearch()
      for step in 0..<max(0, length) {
        let at = step * row + entry * {{ ctc_classes }}
        search.step(logits[at..<at + {{ ctc_classes }}])
      }
      return search.leaves.prefix({{ ctc.top_paths }}).map { leaf in
        var labels: [Int] = []
{% if ctc.merge_repeated %}
        var previous = -1
{% endif %}
        var beam = search.beams[leaf]
        while beam.parent >= 0 {
{% if ctc.merge_repeated %}
          if beam.last != previous { labels.append(beam.last) }
          previous = beam.last
{% else %}
          labels.append(beam.last)
{% endif %}
          beam = search.beams[beam.parent]
        }
        return Decoded(labels: labels.reversed(), score: search.beams[leaf].total)
      }
{% endif %}
    }
  }

{% if ctc.method != "greedy" %}
  /// A prefix of labels. `label` is the log probability of the alignments that end in the last label,
  /// `blank` that of those that end in a blank. The old ones are of the step before. Parents and
  /// children are indices of `CtcSearch.beams`.
  private struct CtcBeam {
    let parent: Int
    let last: Int
    var children: [Int: Int] = [:]
    var total = -Float.infinity
    var blank = -Float.infinity
    var label = -Float.infinity
    var oldTotal = -Float.infinity
    var oldBlank = -Float.infinity

    init(parent: Int, last: Int) {
      self.parent = parent
      self.last = last
    }
  }

  /// The likeliest prefixes of one sequence, best first.
  private struct CtcSearch {
    var beams: [CtcBeam] = [CtcBeam(parent: -1, last: -1)]
    var leaves: [Int] = [0]

    init() {
      beams[0].total = 0
      beams[0].blank = 0
    }

    /// Advances by the logits of one step.
    mutating func step(_ logits: ArraySlice<Float>) {
      let peak = logits.max() ?? 0
      let norm = peak + Foundation.log(logits.reduce(Float(0)) { $0 + Foundation.exp($1 - peak) })
      let scores = logits.map { $0 - norm }
      let before = leaves
      leaves = []
      for beam in before {
        beams[beam].oldTotal = beams[beam].total
        beams[beam].oldBlank = beams[beam].blank
      }
      for beam in before {
        stay(beam, scores)
        _ = push(beam)
      }
      for beam in before where beams[beam].oldTotal > floor() { grow(beam, scores) }
    }

    /// Adds a beam behind those that are as likely, and returns the one that it displaces.
    private mutating func push(_ beam: Int) -> Int? {
      var place = leaves.count
      while place > 0 && beams[leaves[place - 1]].total < beams[beam].total { place -= 1 }
      leaves.insert(beam, at: place)
      return leaves.count <= {{ ctc.beam_width }} ? nil : leaves.removeLast()
    }

    private func floor() -> Float {
      leaves.count < {{ ctc.beam_width }} ? -Float.infinity : beams[leaves[leaves.count - 1]].total
    }

    /// Adds a blank, or a repetition of the last label.
    private mutating func stay(_ index: Int, _ scores: [Float]) {
      var beam = beams[index]
      if beam.parent >= 0 {
        let parent = beams[beam.parent]
        if parent.total > -Float.infinity {
          let before = beam.last == parent.last ? parent.oldBlank : parent.oldTotal
          beam.label = CtcSearch.logSum(beam.label, before)
        }
        beam.label += scores[beam.last]
      }
      beam.blank = beam.oldTotal + scores[scores.count - 1]
      beam.total = CtcSearch.logSum(beam.blank, beam.label)
      beams[index] = beam
    }

    /// Adds the prefixes with one more label that are likely enough.
    private mutating func grow(_ index: Int, _ scores: [Float]) {
      for label in 0..<scores.count - 1 {
        let known = beams[index].children[label]
        if let child = known, beams[child].total > -Float.infinity { continue }
        let beam = beams[index]
        let score = scores[label] + (label == beam.last ? beam.oldBlank : beam.oldTotal)
        if score > floor() {
          let child = known ?? beams.count
          if known == nil {
            beams.append(CtcBeam(parent: index, last: label))
            beams[index].children[label] = child
          }
          beams[child].label = score
          beams[child].total = score
          if let displaced = push(child) {
            beams[displaced].total = -Float.infinity
            beams[displaced].blank = -Float.infinity
            beams[displaced].label = -Float.infinity
          }
        } else if let child = known {
          beams[child].oldTotal = -Float.infinity
          beams[child].oldBlank = -Float.infinity
        }
      }
    }

    private static func logSum(_ a: Float, _ b: Float) -> Float {
      let larger = max(a, b)
      let smaller = min(a, b)
      if smaller == -Float.infinity { return larger }
      return larger + Foundation.log1p(Foundation.exp(smaller - larger))
    }
  }

{% endif %}
