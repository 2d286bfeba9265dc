
// Decodes `count` logits [steps, batch, {{ ctc_classes }}], as TensorFlow does: {% if ctc.top_paths > 1 %}{{ ctc.top_paths }} sequences of labels{% else %}one sequence of labels{% endif %} for
// each batch entry{% if ctc.method != "greedy" %}, likeliest first{% endif %}. {% if ctc.fixed_lengths %}The number of steps of each entry is that of the training graph.{% else %}The lengths are the numbers of steps of the entries.{% endif %}

// Returns nothing if the sizes do not fit. The scores are {% if ctc.method == "greedy" %}the negated sums of the largest logits{% else %}the logarithms of the probabilities{% endif %}.
+ (NSArray<NSArray<NSArray<NSNumber *> *> *> *)decode:(const float *)logits
                                                count:(int)count
{% if not ctc.fixed_lengths %}
                                              lengths:(NSArray<NSNumber *> *)lengths
{% endif %}
                                               scores:(NSArray<NSArray<NSNumber *> *> **)scores;
