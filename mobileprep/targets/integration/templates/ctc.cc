{% if ctc.method != "greedy" %}
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A prefix of labels. `label` is the log probability of the alignments that end in the last label,
// `blank` that of those that end in a blank, and `old_` marks those of the step before.
struct CtcBeam {
  CtcBeam* parent;
  int last;
  float total, blank, label, old_total, old_blank;
  std::map<int, CtcBeam*> children;
};

float CtcLogSum(float a, float b) {
  const float larger = std::max(a, b);
  const float smaller = std::min(a, b);
  return smaller == kNever ? larger : larger + std::log1p(std::exp(smaller - larger));
}

// The likeliest prefixes of one sequence, best first.
class CtcSearch {
 public:
  CtcSearch() {
    beams_.push_back({nullptr, -1, 0.0f, 0.0f, kNever, kNever, kNever, {}});
    leaves_.push_back(&beams_.back());
  }

  // Advances by the logits of one step.
  void Step(const float* logits) {
    const float peak = *std::max_element(logits, logits + {{ ctc_classes }});
    float sum = 0;
    for (int c = 0; c < {{ ctc_classes }}; ++c) sum += std::exp(logits[c] - peak);
    const float norm = peak + std::log(sum);
    std::vector<float> scores(logits, logits + {{ ctc_classes }});
    for (float& score : scores) score -= norm;
    std::vector<CtcBeam*> before;
    before.swap(leaves_);
    for (CtcBeam* beam : before) {
      beam->old_total = beam->total;
      beam->old_blank = beam->blank;
    }
    for (CtcBeam* beam : before) {
      Stay(beam, scores);
      Push(beam);
    }
    for (CtcBeam* beam : before) {
      if (beam->old_total > Floor()) Grow(beam, scores);
    }
  }

  const std::vector<CtcBeam*>& leaves() const { return leaves_; }

 private:
  // Adds a beam behind those that are as likely, and returns the one that it displaces.
  CtcBeam* Push(CtcBeam* beam) {
    const auto place = std::upper_bound(
        leaves_.begin(), leaves_.end(), beam,
        [](const CtcBeam* a, const CtcBeam* b) { return a->total > b->total; });
    leaves_.insert(place, beam);
    if (leaves_.size() <= {{ ctc.beam_width }}) return nullptr;
    CtcBeam* displaced = leaves_.back();
    leaves_.pop_back();
    return displaced;
  }

  float Floor() const { return leaves_.size() < {{ ctc.beam_width }} ? kNever : leaves_.back()->total; }

  // Adds a blank, or a repetition of the last label.
  static void Stay(CtcBeam* beam, const std::vector<float>& scores) {
    const CtcBeam* parent = beam->parent;
    if (parent != nullptr) {
      if (parent->total > kNever) {
        const bool repeated = beam->last == parent->last;
        beam->label = CtcLogSum(beam->label, repeated ? parent->old_blank : parent->old_total);
      }
      beam->label += scores[beam->last];
    }
    beam->blank = beam->old_total + scores.back();
    beam->total = CtcLogSum(beam->blank, beam->label);
  }

  // Adds the prefixes with one more label that are likely enough.
  void Grow(CtcBeam* beam, const std::vector<float>& scores) {
    for (int label = 0; label < {{ ctc_classes - 1 }}; ++label) {
      const auto known = beam->children.find(label);
      CtcBeam* child = known == beam->children.end() ? nullptr : known->second;
      if (child != nullptr && child->total > kNever) continue;
      const float before = label == beam->last ? beam->old_blank : beam->old_total;
      const float score = scores[label] + before;
      if (score > Floor()) {
        if (child == nullptr) {
          beams_.push_back({beam, label, kNever, kNever, kNever, kNever, kNever, {}});
          child = beam->children[label] = &beams_.back();
        }
        child->label = child->total = score;
        CtcBeam* displaced = Push(child);
        if (displaced != nullptr) displaced->total = displaced->blank = displaced->label = kNever;
      } else if (child != nullptr) {
        child->old_total = child->old_blank = kNever;
      }
    }
  }

  std::deque<CtcBeam> beams_;
  std::vector<CtcBeam*> leaves_;
};

}  // namespace

{% endif %}
std::vector<std::vector<{{ class_name }}::Decoded>> {{ class_name }}::Decode(
    const std::vector<float>& logits{% if not ctc.fixed_lengths %}, const std::vector<int>& lengths{% endif %}) {
{% if ctc.fixed_lengths %}
  const std::vector<int> lengths = { {{- ctc.fixed_lengths | dims -}} };
{% endif %}
  const std::size_t row = lengths.size() * {{ ctc_classes }};
  if (row == 0 || logits.size() % row != 0) return {};
  std::vector<std::vector<Decoded>> entries;
  for (std::size_t entry = 0; entry < lengths.size(); ++entry) {
    const int length = std::max(0, lengths[entry]);
    if (static_cast<std::size_t>(length) > logits.size() / row) return {};
{% if ctc.method == "greedy" %}
    Decoded decoded{ {}, 0.0f};
{% if ctc.merge_repeated %}
    int previous = -1;
{% endif %}
    for (int step = 0; step < length; ++step) {
      const float* scores = logits.data() + step * row + entry * {{ ctc_classes }};
      const float* best = std::max_element(scores, scores + {{ ctc_classes }});
      const int label = static_cast<int>(best - scores);
      decoded.score -= *best;
      if (label != {{ ctc_blank }}{% if ctc.merge_repeated %} && label != previous{% endif %}) decoded.labels.push_back(label);
{% if ctc.merge_repeated %}
      previous = label;
{% endif %}
    }
    entries.push_back({decoded});
{% else %}
    CtcSearch search;
    for (int step = 0; step < length; ++step) {
      search.Step(logits.data() + step * row + entry * {{ ctc_classes }});
    }
    std::vector<Decoded> paths;
    for (const CtcBeam* leaf : search.leaves()) {
      if (paths.size() == {{ ctc.top_paths }}) break;
      Decoded decoded{ {}, leaf->total};
{% if ctc.merge_repeated %}
      int previous = -1;
{% endif %}
      for (const CtcBeam* beam = leaf; beam->parent != nullptr; beam = beam->parent) {
{% if ctc.merge_repeated %}
        if (beam->last != previous) decoded.labels.push_back(beam->last);
        previous = beam->last;
{% else %}
        decoded.labels.push_back(beam->last);
{% endif %}
      }
      std::reverse(decoded.labels.begin(), decoded.labels.end());
      paths.push_back(decoded);
    }
    entries.push_back(paths);
{% endif %}
  }
  return entries;
}
