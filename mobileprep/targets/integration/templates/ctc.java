  /** A decoded sequence of labels, and {% if ctc.method == "greedy" %}the negated sum of the largest logits{% else %}the logarithm of its probability{% endif %}. */
  public static final class Decoded {
    public final int[] labels;
    public final float score;

    Decoded(List<Integer> labels, float score) {
      this.labels = new int[labels.size()];
      for (int i = 0; i < this.labels.length; i++) this.labels[i] = labels.get(i);
      this.score = score;
    }
  }

  /**
   * Decodes the logits [steps, batch, {{ ctc_classes }}], as TensorFlow does: {% if ctc.top_paths > 1 %}{{ ctc.top_paths }} sequences{% else %}one sequence{% endif %} for each batch
   * entry{% if ctc.method != "greedy" %}, likeliest first{% endif %}. {% if ctc.fixed_lengths %}The number of steps of each entry is that of the training graph.
{% else %}The lengths are the numbers of steps of the entries.
{% endif %}
   */
  public static List<List<Decoded>> decode(float[] logits{% if not ctc.fixed_lengths %}, int[] lengths{% endif %}) {
{% if ctc.fixed_lengths %}
    int[] lengths = { {{- ctc.fixed_lengths | dims -}} };
{% endif %}
    int row = lengths.length * {{ ctc_classes }};
    if (row == 0 || logits.length % row != 0) {
      throw new IllegalArgumentException(logits.length + " logits for " + lengths.length + " entries");
    }
    List<List<Decoded>> entries = new ArrayList<>();
    for (int entry = 0; entry < lengths.length; entry++) {
      if (lengths[entry] > logits.length / row) {
        throw new IllegalArgumentException(lengths[entry] + " of " + logits.length / row + " steps");
      }
      List<Decoded> paths = new ArrayList<>();
{% if ctc.method == "greedy" %}
      List<Integer> labels = new ArrayList<>();
      float score = 0;
{% if ctc.merge_repeated %}
      int previous = -1;
{% endif %}
      for (int step = 0; step < lengths[entry]; step++) {
        int at = step * row + entry * {{ ctc_classes }};
        int label = 0;
        for (int c = 1; c < {{ ctc_classes }}; c++) {
          if (logits[at + c] > logits[at + label]) label = c;
        }
        score -= logits[at + label];
        if (label != {{ ctc_blank }}{% if ctc.merge_repeated %} && label != previous{% endif %}) labels.add(label);
{% if ctc.merge_repeated %}
        previous = label;
{% endif %}
      }
      paths.add(new Decoded(labels, score));
{% else %}
      CtcSearch search = new CtcSearch();
      for (int step = 0; step < lengths[entry]; step++) {
        search.step(logits, step * row + entry * {{ ctc_classes }});
      }
      for (CtcBeam leaf : search.leaves) {
        if (paths.size() == {{ ctc.top_paths }}) break;
        LinkedList<Integer> labels = new LinkedList<>();
{% if ctc.merge_repeated %}
        int previous = -1;
{% endif %}
        for (CtcBeam beam = leaf; beam.parent != null; beam = beam.parent) {
{% if ctc.merge_repeated %}
          if (beam.last != previous) labels.addFirst(beam.last);
          previous = beam.last;
{% else %}
          labels.addFirst(beam.last);
{% endif %}
        }
        paths.add(new Decoded(labels, leaf.total));
      }
{% endif %}
      entries.add(paths);
    }
    return entries;
  }

{% if ctc.method != "greedy" %}
  private static final float NEVER = Float.NEGATIVE_INFINITY;

  /**
   * A prefix of labels. {@code label} is the log probability of the alignments that end in the last
   * label, {@code blank} that of those that end in a blank. The old ones are of the step before.
   */
  private static final class CtcBeam {
    final CtcBeam parent;
    final int last;
    final Map<Integer, CtcBeam> children = new HashMap<>();
    float total = NEVER;
    float blank = NEVER;
    float label = NEVER;
    float oldTotal = NEVER;
    float oldBlank = NEVER;

    CtcBeam(CtcBeam parent, int last) {
      this.parent = parent;
      this.last = last;
    }
  }

  /** The likeliest prefixes of one sequence, best first. */
  private static final class CtcSearch {
    List<CtcBeam> leaves = new ArrayList<>();

    CtcSearch() {
      CtcBeam root = new CtcBeam(null, -1);
      root.total = 0;
      root.blank = 0;
      leaves.add(root);
    }

    /** Advances by the logits of one step. */
    void step(float[] logits, int at) {
      float peak = NEVER;
      for (int c = 0; c < {{ ctc_classes }}; c++) peak = Math.max(peak, logits[at + c]);
      float sum = 0;
      for (int c = 0; c < {{ ctc_classes }}; c++) sum += (float) Math.exp(logits[at + c] - peak);
      float norm = peak + (float) Math.log(sum);
      float[] scores = new float[{{ ctc_classes }}];
      for (int c = 0; c < scores.length; c++) scores[c] = logits[at + c] - norm;
      List<CtcBeam> before = leaves;
      leaves = new ArrayList<>();
      for (CtcBeam beam : before) {
        beam.oldTotal = beam.total;
        beam.oldBlank = beam.blank;
      }
      for (CtcBeam beam : before) {
        stay(beam, scores);
        push(beam);
      }
      for (CtcBeam beam : before) {
        if (beam.oldTotal > floor()) grow(beam, scores);
      }
    }

    /** Adds a beam behind those that are as likely, and returns the one that it displaces. */
    private CtcBeam push(CtcBeam beam) {
      int place = leaves.size();
      while (place > 0 && leaves.get(place - 1).total < beam.total) place--;
      leaves.add(place, beam);
      return leaves.size() <= {{ ctc.beam_width }} ? null : leaves.remove(leaves.size() - 1);
    }

    private float floor() {
      return leaves.size() < {{ ctc.beam_width }} ? NEVER : leaves.get(leaves.size() - 1).total;
    }

    /** Adds a blank, or a repetition of the last label. */
    private static void stay(CtcBeam beam, float[] scores) {
      if (beam.parent != null) {
        if (beam.parent.total > NEVER) {
          boolean repeated = beam.last == beam.parent.last;
          beam.label = logSum(beam.label, repeated ? beam.parent.oldBlank : beam.parent.oldTotal);
        }
        beam.label += scores[beam.last];
      }
      beam.blank = beam.oldTotal + scores[scores.length - 1];
      beam.total = logSum(beam.blank, beam.label);
    }

    /** Adds the prefixes with one more label that are likely enough. */
    private void grow(CtcBeam beam, float[] scores) {
      for (int label = 0; label < scores.length - 1; label++) {
        CtcBeam child = beam.children.get(label);
        if (child != null && child.total > NEVER) continue;
        float score = scores[label] + (label == beam.last ? beam.oldBlank : beam.oldTotal);
        if (score > floor()) {
          if (child == null) {
            child = new CtcBeam(beam, label);
            beam.children.put(label, child);
          }
          child.label = score;
          child.total = score;
          CtcBeam displaced = push(child);
          if (displaced != null) {
            displaced.total = NEVER;
            displaced.blank = NEVER;
            displaced.label = NEVER;
          }
        } else if (child != null) {
          child.oldTotal = NEVER;
          child.oldBlank = NEVER;
        }
      }
    }

    private static float logSum(float a, float b) {
      float larger = Math.max(a, b);
      float smaller = Math.min(a, b);
      return smaller == NEVER ? larger : larger + (float) Math.log1p(Math.exp(smaller - larger));
    }
  }

{% endif %}
