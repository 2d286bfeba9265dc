
        /** Decodes the logits [steps, batch, {{ ctc_classes }}], as TensorFlow does: {% if ctc.top_paths > 1 %}{{ ctc.top_paths }} sequences{% else %}one sequence{% endif %} for each
         * batch entry{% if ctc.method != "greedy" %}, likeliest first{% endif %}. {% if ctc.fixed_lengths %}The number of steps of each entry is that of the training graph. */
{% else %}The lengths are the numbers of steps of the entries. */
{% endif %}
        fun decode(logits: FloatArray{% if not ctc.fixed_lengths %}, lengths: IntArray{% endif %}): List<List<Decoded>> {
{% if ctc.fixed_lengths %}
            val lengths = intArrayOf({{ ctc.fixed_lengths | dims }})
{% endif %}
            val row = lengths.size * {{ ctc_classes }}
            require(row > 0 && logits.size % row == 0) { "${logits.size} logits for ${lengths.size} entries" }
            return lengths.mapIndexed { entry, length ->
                require(length <= logits.size / row) { "$length of ${logits.size / row} steps" }
{% if ctc.method == "greedy" %}
                val labels = mutableListOf<Int>()
                var score = 0f
{% if ctc.merge_repeated %}
                var previous = -1
{% endif %}
                for (step in 0 until length) {
                    val at = step * row + entry * {{ ctc_classes }}
                    var label = 0
                    for (c in 1 until {{ ctc_classes }}) if (logits[at + c] > logits[at + label]) label = c
                    score -= logits[at + label]
                    if (label != {{ ctc_blank }}{% if ctc.merge_repeated %} && label != previous{% endif %}) labels.add(label)
{% if ctc.merge_repeated %}
                    previous = label
{% endif %}
                }
                listOf(Decoded(labels.toIntArray(), score))
{% else %}
                val search = CtcSearch()
                for (step in 0 until length) search.step(logits, step * row + entry * {{ ctc_classes }})
                search.leaves.take({{ ctc.top_paths }}).map { leaf ->
                    val path = generateSequence(leaf) { it.parent }.filter { it.last >= 0 }.map { it.last }.toList()
{% if ctc.merge_repeated %}
                    val labels = path.filterIndexed { i, label -> i == 0 || label != path[i - 1] }
                    Decoded(labels.reversed().toIntArray(), leaf.total)
{% else %}
                    Decoded(path.reversed().toIntArray(), leaf.total)
{% endif %}
                }
{% endif %}
            }
        }
{% if ctc.method != "greedy" %}

        private val NEVER = Float.NEGATIVE_INFINITY

        /** A prefix of labels. [label] is the log probability of the alignments that end in the last label,
         * [blank] that of those that end in a blank. The old ones are of the step before. */
        private class CtcBeam(val parent: CtcBeam?, val last: Int) {
            val children = mutableMapOf<Int, CtcBeam>()
            var total = NEVER
            var blank = NEVER
            var label = NEVER
            var oldTotal = NEVER
            var oldBlank = NEVER
        }

        /** The likeliest prefixes of one sequence, best first. */
        private class CtcSearch {
            var leaves = mutableListOf(CtcBeam(null, -1).apply { total = 0f; blank = 0f })

            /** Advances by the logits of one step. */
            fun step(logits: FloatArray, at: Int) {
                var peak = NEVER
                for (c in 0 until {{ ctc_classes }}) peak = maxOf(peak, logits[at + c])
                var sum = 0f
                for (c in 0 until {{ ctc_classes }}) sum += kotlin.math.exp(logits[at + c] - peak)
                val norm = peak + kotlin.math.ln(sum)
                val scores = FloatArray({{ ctc_classes }}) { logits[at + it] - norm }
                val before = leaves
                leaves = mutableListOf()
                for (beam in before) {
                    beam.oldTotal = beam.total
                    beam.oldBlank = beam.blank
                }
                for (beam in before) {
                    stay(beam, scores)
                    push(beam)
                }
                for (beam in before) if (beam.oldTotal > floor()) grow(beam, scores)
            }

            /** Adds a beam behind those that are as likely, and returns the one that it displaces. */
            private fun push(beam: CtcBeam): CtcBeam? {
                leaves.add(leaves.indexOfLast { it.total >= beam.total } + 1, beam)
                return if (leaves.size <= {{ ctc.beam_width }}) null else leaves.removeAt(leaves.size - 1)
            }

            private fun floor(): Float = if (leaves.size < {{ ctc.beam_width }}) NEVER else leaves[leaves.size - 1].total

            /** Adds a blank, or a repetition of the last label. */
            private fun stay(beam: CtcBeam, scores: FloatArray) {
                val parent = beam.parent
                if (parent != null) {
                    if (parent.total > NEVER) {
                        val isRepeated = beam.last == parent.last
                        beam.label = logSum(beam.label, if (isRepeated) parent.oldBlank else parent.oldTotal)
                    }
                    beam.label += scores[beam.last]
                }
                beam.blank = beam.oldTotal + scores[scores.size - 1]
                beam.total = logSum(beam.blank, beam.label)
            }

            /** Adds the prefixes with one more label that are likely enough. */
            private fun grow(beam: CtcBeam, scores: FloatArray) {
                for (label in 0 until scores.size - 1) {
                    val known = beam.children[label]
                    if (known != null && known.total > NEVER) continue
                    val score = scores[label] + (if (label == beam.last) beam.oldBlank else beam.oldTotal)
                    if (score > floor()) {
                        val child = known ?: CtcBeam(beam, label).also { beam.children[label] = it }
                        child.label = score
                        child.total = score
                        push(child)?.apply {
                            total = NEVER
                            blank = NEVER
                            this.label = NEVER
                        }
                    } else if (known != null) {
                        known.oldTotal = NEVER
                        known.oldBlank = NEVER
                    }
                }
            }

            private fun logSum(a: Float, b: Float): Float {
                val larger = maxOf(a, b)
                val smaller = minOf(a, b)
                return if (smaller == NEVER) larger else larger + kotlin.math.ln1p(kotlin.math.exp(smaller - larger))
            }
        }
{% endif %}
