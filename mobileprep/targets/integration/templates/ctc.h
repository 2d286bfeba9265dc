  // A decoded sequence of labels.
  struct Decoded {
    std::vector<int> labels;
{% if ctc.method == "greedy" %}
    // The negated sum of the largest logits.
    float score;
{% else %}
    // The logarithm of the probability.
    float score;
{% endif %}
  };

  // Decodes the logits [steps, batch, {{ ctc_classes }}], as TensorFlow does: {% if ctc.top_paths > 1 %}{{ ctc.top_paths }} sequences{% else %}one sequence{% endif %} for each batch
  // entry{% if ctc.method != "greedy" %}, likeliest first{% endif %}. {% if ctc.fixed_lengths %}The number of steps of each entry is that of the training graph{% else %}`lengths` has the number of steps of each entry{% endif %}. Returns nothing if
  // the sizes do not fit.
  static std::vector<std::vector<Decoded>> Decode(const std::vector<float>& logits{% if not ctc.fixed_lengths %},
                                                  const std::vector<int>& lengths{% endif %});
