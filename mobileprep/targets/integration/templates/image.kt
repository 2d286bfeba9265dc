{% if image %}

        /**
         * Converts pixels of Bitmap.getPixels to values for [feed{{ image.pascal }}].
         * The image must have the size of the input.
         */
        fun imageValues(pixels: IntArray): {{ image.kotlin }} {
            val values = {{ image.kotlin }}(pixels.size * {{ channels | length }})
            var at = 0
            for (pixel in pixels) {
{% if images.channels == "grayscale" %}
                val luminance = Math.round(
                    0.299f * ((pixel shr 16) and 0xFF) +
                        0.587f * ((pixel shr 8) and 0xFF) +
                        0.114f * (pixel and 0xFF)
                )
{% endif %}
{% for channel in channels %}
{% if image.tensor.dtype.name == "FLOAT" %}
                values[at++] = ({{ channel.kotlin }} - {{ channel.mean | float }}) / {{ channel.std | float }}
{% else %}
                values[at++] = Math.rint((({{ channel.kotlin }} - {{ channel.mean | float }}) / {{ channel.std | float }}).toDouble())
                    .coerceIn(0.0, 255.0).toInt().toByte()
{% endif %}
{% endfor %}
            }
            return values
        }
{% endif %}
{% if model.labels %}

        /** Reads the class names, in the order of the outputs. */
        fun readLabels(assets: AssetManager): List<String> =
            assets.open(LABELS_FILE).bufferedReader(Charsets.UTF_8).use { it.readLines() }
{% endif %}
{% if pre and not pre.is_audio %}

        /**
         * Crops, resizes, and scales an image of any size, as the training graph did, to values for
         * [feed{{ pre_named.pascal }}]. Pixels are those of Bitmap.getPixels, row by row.
         */
        fun preprocess(pixels: IntArray, width: Int, height: Int): {{ pre_kotlin }} {
{% if crop %}
            val top = ((height - height * {{ crop }}) / 2).toInt()
            val left = ((width - width * {{ crop }}) / 2).toInt()
{% else %}
            val top = 0
            val left = 0
{% endif %}
            val rowsBefore = height - 2 * top
            val columnsBefore = width - 2 * left
            val rows = {% if pre.resize %}{{ pre.resize[0] }}{% else %}rowsBefore{% endif %}

            val columns = {% if pre.resize %}{{ pre.resize[1] }}{% else %}columnsBefore{% endif %}

            val down = places(rowsBefore, rows)
            val across = places(columnsBefore, columns)
            val values = {{ pre_kotlin }}(rows * columns * {{ pre_channels | length }})
            var at = 0
            for (y in 0 until rows) {
                val y0 = minOf(rowsBefore - 1, maxOf(0, Math.floor(down[y].toDouble()).toInt()))
                val y1 = maxOf(0, minOf(rowsBefore - 1, Math.ceil(down[y].toDouble()).toInt()))
                val weightY = down[y] - Math.floor(down[y].toDouble()).toFloat()
                for (x in 0 until columns) {
                    val x0 = minOf(columnsBefore - 1, maxOf(0, Math.floor(across[x].toDouble()).toInt()))
                    val x1 = maxOf(0, minOf(columnsBefore - 1, Math.ceil(across[x].toDouble()).toInt()))
                    val weightX = across[x] - Math.floor(across[x].toDouble()).toFloat()
                    for (channel in 0 until {{ pre_channels | length }}) {
                        fun color(row: Int, column: Int) =
                            colorOf(pixels[(top + row) * width + left + column], channel)
                        val upper = color(y0, x0) + (color(y0, x1) - color(y0, x0)) * weightX
                        val lower = color(y1, x0) + (color(y1, x1) - color(y1, x0)) * weightX
                        val value = upper + (lower - upper) * weightY
                        values[at++] = {% if pre_java == "float" %}(value - MEAN[channel]) / STD[channel]{% elif pre_rounds %}Math.rint(value.toDouble()).toInt().toByte(){% else %}value.toInt().toByte(){% endif %}

                    }
                }
            }
            return values
        }

{% if pre_java == "float" %}
        private val MEAN = floatArrayOf({% for channel in pre_channels %}{{ channel.mean | float }}{% if not loop.last %}, {% endif %}{% endfor %})
        private val STD = floatArrayOf({% for channel in pre_channels %}{{ channel.std | float }}{% if not loop.last %}, {% endif %}{% endfor %})

{% endif %}
        private fun colorOf(pixel: Int, channel: Int): Float =
            when (channel) {
{% for channel in pre_channels %}
                {%+ if loop.last %}else{% else %}{{ loop.index0 }}{% endif %} -> {% if channel.color is none %}Math.floor((0.299f * ((pixel shr 16) and 0xFF) + 0.587f * ((pixel shr 8) and 0xFF) + 0.114f * (pixel and 0xFF) + 0.5f).toDouble()).toFloat(){% else %}{{ channel.kotlin }}.toFloat(){% endif %}

{% endfor %}
            }

        /** Returns the positions in the source of the pixels along an axis of the resized image. */
        private fun places(extent: Int, count: Int): FloatArray {
{% if pre.align_corners %}
            val scale = if (count > 1) (extent - 1) / (count - 1).toFloat() else extent / count.toFloat()
{% else %}
            val scale = extent / count.toFloat()
{% endif %}
            return FloatArray(count) { i ->
{% if pre.interpolation == "nearest" %}
                val place = {% if pre.half_pixel_centers %}(i + 0.5f) * scale{% else %}i * scale{% endif %}

                minOf((extent - 1).toFloat(), Math.floor((place{% if pre.align_corners %} + 0.5f{% endif %}).toDouble()).toFloat())
{% else %}
                {%+ if pre.half_pixel_centers %}(i + 0.5f) * scale - 0.5f{% else %}i * scale{% endif %}

{% endif %}
            }
        }
{% elif pre %}

        /**
         * Converts 16-bit samples, with the channels of each frame next to each other, to values for
         * [feed{{ pre_named.pascal }}].
         */
        fun preprocess(samples: ShortArray, channels: Int): FloatArray {
            val frames = samples.size / channels
            val count = {% if pre.desired_samples %}{{ pre.desired_samples }}{% else %}frames{% endif %}

            val wanted = {% if pre.desired_channels %}{{ pre.desired_channels }}{% else %}channels{% endif %}

            val values = FloatArray(count * wanted)
            for (i in 0 until minOf(frames, count)) {
                for (c in 0 until wanted) {
                    values[i * wanted + c] = samples[i * channels + minOf(c, channels - 1)] / 32768f
                }
            }
            return values
        }
{% endif %}
{% if ctc %}
{% include "ctc.kt" %}
{% endif %}
{% if model.ranks %}

        /** Returns the indices of the k highest scores, highest first. */
        fun topK(scores: FloatArray, k: Int): List<Int> =
            scores.indices.sortedByDescending { scores[it] }.take(maxOf(0, k))
{% endif %}
