// See map.h. A chunk is a memfd that the service made and pinned; this file maps it over the
// reserved addresses, and an unmap restores the reservation.

#include "client/link/map.h"

#include <sys/mman.h>
#include <unistd.h>

#include "client/link/control.h"
#include "client/state/backing.h"
#include "client/state/uncancelled.h"

/* A file that the service has taken ends with its daemon, of which the next one is there then. */
#define FILE_TRIES 4

static CUresult attach(struct packet *packet, uint64_t address, uint64_t bytes)
{
	int fd = packet_take_fd(packet, 0);
	void *at = MAP_FAILED;

	/* The pages are there and pinned, so populating only fills this process's tables. */
	if (fd >= 0)
		at = mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
	if (fd >= 0)
		uncancelled_close(fd);
	return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult map_host_end(uint64_t address, uint64_t bytes)
{
	struct wire_message request = {
		.type = WIRE_UNMAP_HOST, .range = {.address = address, .bytes = bytes}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;
	void *at;

	control_answer_free(answer);
	/* The mapping is unchanged. */
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	at = mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (at != MAP_FAILED)
		madvise(at, bytes, MADV_DONTFORK);
	return r;
}

static CUresult ask(struct wire_message *request, uint64_t address, uint64_t bytes)
{
	struct control_answer *answer = control_answer_new();
	CUresult r;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = control_call(request, answer);
	if (r == CUDA_SUCCESS) {
		r = attach(&answer->packet, address, bytes);
		if (r != CUDA_SUCCESS)
			map_host_end(address, bytes);
	}
	control_answer_free(answer);
	return r;
}

CUresult map_host(uint64_t address, uint64_t bytes)
{
	struct wire_message request = {.type = WIRE_MAP_HOST, .range = {.address = address, .bytes = bytes}};

	return ask(&request, address, bytes);
}

/* CUDA_ERROR_ILLEGAL_STATE: the service does not know the file any more. */
static CUresult ask_with_file(uint64_t address, uint64_t bytes, const struct backing *file)
{
	struct wire_message request = {
		.type = WIRE_MAP_HOST, .range = {.address = address, .bytes = bytes, .offset = file->offset}};
	struct control_answer *answer;
	CUresult r = control_take_file(file, &request.range.file);

	if (r != CUDA_SUCCESS)
		return r;
	answer = control_answer_new();
	r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;
	control_answer_free(answer);
	return r;
}

CUresult map_host_file(uint64_t address, uint64_t bytes, const struct backing *file)
{
	CUresult r = CUDA_ERROR_ILLEGAL_STATE;
	void *at;

	for (int i = 0; i < FILE_TRIES && r == CUDA_ERROR_ILLEGAL_STATE; ++i)
		r = ask_with_file(address, bytes, file);
	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_ILLEGAL_STATE || r == CUDA_ERROR_INVALID_VALUE
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : r;
	at = mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->fd,
		(off_t)file->offset);
	if (at == MAP_FAILED) {
		map_host_end(address, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	madvise(at, bytes, MADV_DONTFORK);
	return CUDA_SUCCESS;
}

CUresult map_host_own(struct wire_message *request, uint64_t address, uint64_t bytes)
{
	CUresult r = ask(request, address, bytes);

	if (r == CUDA_SUCCESS)
		madvise((void *)(uintptr_t)address, bytes, MADV_DONTFORK);
	return r;
}
