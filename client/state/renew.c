// See renew.h. Runs on the program's threads.

#include "client/state/renew.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct renewal {
	void *view; /* of the sealed file: its contents cannot change */
	uint64_t bytes;
	bool relocatable;
	uint32_t count;
	struct wire_option options[];
};

struct renewal *renewal_new(const struct image *image, const struct jit *jit)
{
	size_t options = jit->count * sizeof(struct wire_option);
	struct renewal *renewal = malloc(sizeof(*renewal) + options);

	if (!renewal)
		return NULL;
	renewal->view = mmap(NULL, image->bytes, PROT_READ, MAP_PRIVATE, image->fd, 0);
	if (renewal->view == MAP_FAILED) {
		free(renewal);
		return NULL;
	}
	renewal->bytes = image->bytes;
	renewal->relocatable = image->relocatable;
	renewal->count = jit->count;
	memcpy(renewal->options, jit->options, options);
	return renewal;
}

struct renewal *renewal_free(struct renewal *renewal)
{
	if (renewal)
		munmap(renewal->view, renewal->bytes);
	free(renewal);
	return NULL;
}

/* The log buffers of the first load may be freed: nothing is written back. */
CUresult renewal_open(const struct renewal *renewal, struct image *ret_image, struct jit *ret_jit)
{
	if (!renewal)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(ret_jit, 0, sizeof(*ret_jit));
	ret_jit->count = renewal->count;
	memcpy(ret_jit->options, renewal->options, renewal->count * sizeof(struct wire_option));
	return image_copy(renewal->view, renewal->bytes, renewal->relocatable, ret_image);
}
