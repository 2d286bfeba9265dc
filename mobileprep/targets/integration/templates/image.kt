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
