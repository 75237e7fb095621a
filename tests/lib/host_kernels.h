// Parameters of the host backend's test kernels (host_kernels.c), laid out as the kernels expect
// them, and where the module is: FRMPS_TEST_KERNELS names the shared object.

#ifndef FRMPS_TESTS_LIB_HOST_KERNELS_H
#define FRMPS_TESTS_LIB_HOST_KERNELS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct add_vectors_params {
	uint64_t out, a, b, count;
};
struct fill_params {
	uint64_t out;
	uint32_t value;
	uint64_t count;
};
struct mix_params {
	uint64_t out, in;
	uint32_t round;
	uint64_t count;
};
struct scale_params {
	uint64_t data, count;
	float factor;
};
struct decide_params {
	uint64_t handle, word;
	uint32_t below;
};

struct count_up_params {
	uint64_t word;
	uint32_t by;
};
struct spin_until_params {
	uint64_t word;
	uint32_t value;
};
struct count_beside_params {
	uint64_t counts, results, gate;
};
struct occupy_params {
	uint64_t words;
};
struct spin_ns_params {
	uint64_t ns;
};
/* The first five limits of the context. */
/* A word for each multiprocessor on which its blocks ran is 1 then. */
struct mark_sms_params {
	uint64_t out;
};
struct read_limits_params {
	uint64_t out;
};

struct read_words_params {
	uint64_t out;
};
struct tally_up_params {
	uint32_t by;
};
struct read_tally_params {
	uint64_t out;
};
/* out: the 64 words of the constant `settings`. */
struct read_settings_params {
	uint64_t out;
};
/* out: count words, the dynamic shared memory after a reversal. */
struct reverse_params {
	uint64_t out, count;
};
/* Sizes and gaps of every kind; echoed packed, without gaps. */
struct odd_inner {
	uint8_t bytes[24];
};
struct echo_params {
	uint8_t a;
	uint64_t b;
	uint16_t c;
	struct odd_inner d;
	uint32_t e;
	uint64_t out;
};
/* Every block writes its number at its place: x + grid.x * (y + grid.y * z). */
struct number_blocks_params {
	uint64_t out;
};
/* textures: handles of two-dimensional arrays of words; out: the sum of each one's texels. */
struct fetch_texels_params {
	uint64_t out, textures, count;
	uint32_t width, height;
};
/* texture: of linear memory, pairs of words. */
struct fetch_pairs_params {
	uint64_t out, texture, count;
};
/* surfaces: handles of two-dimensional arrays of words; adds to the first texel of each. */
struct bump_surfaces_params {
	uint64_t surfaces, count;
	uint32_t by;
};
/* words: how often it ran, how many of its runs are to fault. */
struct crash_when_told_params {
	uint64_t words, address;
};
struct crash_write_params {
	uint64_t address;
};

/* The module's image; the caller frees it. NULL if it cannot be read. */
static inline void *host_kernels_read(size_t *ret_bytes)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	FILE *file = fopen(path ? path : "", "rb");
	char *image = NULL;
	long size;

	if (!file)
		return NULL;
	if (!fseek(file, 0, SEEK_END) && (size = ftell(file)) > 0) {
		rewind(file);
		image = malloc((size_t)size);
		if (image && fread(image, 1, (size_t)size, file) == (size_t)size) {
			*ret_bytes = (size_t)size;
		} else {
			free(image);
			image = NULL;
		}
	}
	fclose(file);
	return image;
}

#endif
