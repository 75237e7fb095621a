// Entry points of the driver's linker. The forms before 6.5 differ from today's only where pointers
// have 32 bits.

#include "client/state/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/entry/entry.h"
#include "client/state/file.h"

CUDA_EXPORT CUresult cuLinkCreate_v2(
	unsigned int count, CUjit_option *options, void **values, CUlinkState *ret_handle)
{
	TRACE_CALL();
	CUresult r = process_enter_context();
	struct jit jit;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	r = jit_begin(count, options, values, &jit);
	/* There is no code to fall back to. */
	for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; ++i)
		if (options[i] == CU_JIT_FALLBACK_STRATEGY)
			r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	jit_end(&jit, true, "");
	return link_create(&jit, ret_handle);
}

CUDA_EXPORT CUresult cuLinkCreate(
	unsigned int count, CUjit_option *options, void **values, CUlinkState *ret_handle)
{
	return cuLinkCreate_v2(count, options, values, ret_handle);
}

/* The usual first lines of calls on a link. */
static CUresult enter(CUlinkState handle, struct client_link **ret_link)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	*ret_link = link_find(handle);
	return *ret_link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult enter_input(CUlinkState handle, CUjitInputType type, unsigned int count,
	CUjit_option *options, void **values, struct client_link **ret_link, struct jit *ret_own)
{
	CUresult r = enter(handle, ret_link);

	if (r != CUDA_SUCCESS)
		return r;
	if ((int)type < 0 || type > CU_JIT_INPUT_NVVM)
		return CUDA_ERROR_INVALID_VALUE;
	return jit_begin(count, options, values, ret_own);
}

CUDA_EXPORT CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
	const char *name, unsigned int count, CUjit_option *options, void **values)
{
	TRACE_CALL();
	struct client_link *link;
	struct jit own;
	CUresult r = enter_input(handle, type, count, options, values, &link, &own);

	if (r != CUDA_SUCCESS)
		return r;
	return data && bytes ? link_add(link, type, data, bytes, name, &own) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
	const char *name, unsigned int count, CUjit_option *options, void **values)
{
	return cuLinkAddData_v2(handle, type, data, bytes, name, count, options, values);
}

/* Reads a whole file; the caller frees the data. */
static CUresult read_file(const char *path, char **ret_data, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), saved = errno;
	struct statx status;
	char *data = NULL;
	bool whole;

	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	whole = statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) == 0 &&
		S_ISREG(status.stx_mode) && status.stx_size > 0 && status.stx_size <= LINK_INPUT_BYTES_MAX;
	if (whole)
		data = malloc((size_t)status.stx_size);
	whole = data && file_read_all(fd, data, status.stx_size);
	close(fd);
	errno = saved;
	if (!whole) {
		free(data);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*ret_data = data;
	*ret_bytes = (size_t)status.stx_size;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path,
	unsigned int count, CUjit_option *options, void **values)
{
	TRACE_CALL();
	struct client_link *link;
	struct jit own;
	size_t bytes;
	char *data;
	CUresult r = enter_input(handle, type, count, options, values, &link, &own);

	if (r != CUDA_SUCCESS)
		return r;
	r = path ? read_file(path, &data, &bytes) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	r = link_add(link, type, data, bytes, path, &own);
	free(data);
	return r;
}

CUDA_EXPORT CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char *path,
	unsigned int count, CUjit_option *options, void **values)
{
	return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

CUDA_EXPORT CUresult cuLinkComplete(CUlinkState handle, void **ret_image, size_t *ret_bytes)
{
	TRACE_CALL();
	struct client_link *link;
	CUresult r = enter(handle, &link);

	if (r != CUDA_SUCCESS)
		return r;
	return ret_image ? link_complete(link, ret_image, ret_bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuLinkDestroy(CUlinkState handle)
{
	struct client_link *link;
	CUresult r = enter(handle, &link);

	return r == CUDA_SUCCESS ? link_destroy(link) : r;
}
