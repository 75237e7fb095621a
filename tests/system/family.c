// See family.h.

#include "tests/system/family.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/status.h"

#define PAGE_BYTES (UINT64_C(2) << 20)

/* What members send each other. */
struct offer {
	CUipcMemHandle memory;
	CUipcEventHandle event;
};

struct member {
	unsigned number;
	CUdeviceptr words;    /* shared: belongings_word() */
	CUdeviceptr counters; /* shared: one of each member, at the beginning */
	CUdeviceptr pinned;   /* shared host memory: the same */
	CUdeviceptr own;      /* a counter that only this member has */
	CUstream stream;
	CUevent event; /* behind the first one's latest count */
	uint32_t counted, others;
};

uint64_t family_words = UINT64_C(66) << 18;

static int between[2] = {-1, -1}, late[2] = {-1, -1};
static unsigned next_number;
static int rounds; /* negative: all the time */

/*
 * Sharing
 */

static CUmemAllocationProp shareable(CUmemLocationType where)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = where},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, CUmemLocationType where)
{
	const CUmemAccessDesc access = {{.type = where}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;

	ck_cuda(cuMemAddressReserve(&address, PAGE_BYTES, 0, 0, 0));
	ck_cuda(cuMemMap(address, PAGE_BYTES, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, PAGE_BYTES, &access, 1));
	return address;
}

static CUdeviceptr exported(CUmemLocationType where, int socket)
{
	const CUmemAllocationProp prop = shareable(where);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	ck_cuda(cuMemCreate(&handle, PAGE_BYTES, &prop, 0));
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	address = mapped(handle, where);
	pass_fd(socket, &fd, true);
	close(fd);
	return address;
}

static CUdeviceptr imported(CUmemLocationType where, int socket)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	pass_fd(socket, &fd, false);
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	return mapped(handle, where);
}

static void give(struct member *member, int socket)
{
	struct offer offer;

	member->words = belongings_filled(family_words);
	ck_cuda(cuEventCreate(&member->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuIpcGetMemHandle(&offer.memory, member->words));
	ck_cuda(cuIpcGetEventHandle(&offer.event, member->event));
	ck_assert_int_eq(write(socket, &offer, sizeof(offer)), sizeof(offer));
	if (late[0] >= 0)
		ck_assert_int_eq(write(late[0], &offer, sizeof(offer)), sizeof(offer));
	member->counters = exported(CU_MEM_LOCATION_TYPE_DEVICE, socket);
	member->pinned = exported(CU_MEM_LOCATION_TYPE_HOST_NUMA, socket);
	ck_cuda(cuMemsetD32_v2(member->counters, 0, FAMILY));
	memset((void *)(uintptr_t)member->pinned, 0, FAMILY * 4);
	ck_cuda(cuCtxSynchronize());
	/* Only now the other one may count. */
	ck_assert_int_eq(write(socket, "", 1), 1);
}

static void take(struct member *member, int socket)
{
	struct offer offer;
	char byte;

	ck_assert_int_eq(read(socket, &offer, sizeof(offer)), sizeof(offer));
	ck_cuda(cuIpcOpenMemHandle_v2(&member->words, offer.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuIpcOpenEventHandle(&member->event, offer.event));
	member->counters = imported(CU_MEM_LOCATION_TYPE_DEVICE, socket);
	member->pinned = imported(CU_MEM_LOCATION_TYPE_HOST_NUMA, socket);
	ck_assert_int_eq(read(socket, &byte, 1), 1);
}

/*
 * A step
 */

static CUresult is_whole(CUdeviceptr memory, bool *ret_whole)
{
	uint32_t *words = malloc(family_words * 4);
	CUresult r = cuMemcpyDtoH_v2(words, memory, family_words * 4);

	for (uint64_t i = 0; !r && i < family_words; i++)
		*ret_whole &= words[i] == belongings_word(i);
	free(words);
	return r;
}

/* In pinned memory, on the device, and in memory of its own. In this order: an order may hold the
 * member between two kernels, and the other one looks at the device first, and expects as much in
 * pinned memory. */
static CUresult count(struct member *member)
{
	static uint32_t one = 1;
	CUdeviceptr places[] = {
		member->pinned + 4 * member->number, member->counters + 4 * member->number, member->own};
	CUresult r = member->number ? cuStreamWaitEvent(member->stream, member->event, 0) : CUDA_SUCCESS;

	for (int i = 0; !r && i < 3; i++)
		r = launch("count_up", 1, 1, member->stream, (void *[]){&places[i], &one});
	if (!r && !member->number)
		r = cuEventRecord(member->event, member->stream);
	member->counted++;
	return r;
}

/* Return: exit status */
static int look(struct member *member)
{
	const volatile uint32_t *pinned = (const void *)(uintptr_t)member->pinned;
	uint32_t counters[FAMILY] = {0}, own = 0, other = 1 - member->number;
	bool whole = true;
	CUresult r = cuStreamSynchronize(member->stream);

	r = r ? r : cuMemcpyDtoH_v2(counters, member->counters, sizeof(counters));
	r = r ? r : cuMemcpyDtoH_v2(&own, member->own, 4);
	r = r ? r : is_whole(member->words, &whole);
	if (r)
		return 3;
	whole &= own == member->counted && counters[member->number] == own && pinned[member->number] == own;
	/* The other one goes on meanwhile. */
	whole &= counters[other] >= member->others && pinned[other] >= counters[other];
	member->others = counters[other];
	return whole ? 0 : 2;
}

static int run(int progress, int orders)
{
	struct member member = {.number = next_number};
	int socket = between[member.number], r = 0;

	close(between[!member.number]);
	driver_open();
	ck_cuda(cuStreamCreate(&member.stream, CU_STREAM_NON_BLOCKING));
	member.own = device_words(1, 0);
	(member.number ? take : give)(&member, socket);
	report(progress);
	for (int i = 0; !r && (rounds < 0 ? !ordered(orders, false) : i < rounds); i++) {
		if (rounds >= 0)
			ordered(orders, true);
		for (int more = rounds < 0 ? 100 : 1; !r && more; more--)
			r = count(&member) ? 3 : 0;
		r = r ? r : look(&member);
		if (!r)
			report(progress);
	}
	/* One that ends by itself keeps all of it until then. */
	if (!r && rounds >= 0)
		ordered(orders, true);
	return r;
}

/*
 * Children
 */

static struct family begin(int how_often)
{
	struct family family;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between), 0);
	rounds = how_often;
	for (next_number = 0; next_number < FAMILY; next_number++)
		family.members[next_number] = child_start(run);
	for (int i = 0; i < FAMILY; i++) {
		close(between[i]);
		child_wait(&family.members[i], 1);
	}
	if (late[0] >= 0)
		close(late[0]);
	late[0] = late[1] = -1;
	return family;
}

struct family family_begin(int how_often)
{
	return begin(how_often);
}

struct family family_begin_busy(void)
{
	return begin(-1);
}

void family_see_it_work(const struct family *family)
{
	for (int i = 0; i < FAMILY; i++)
		see_it_work(&family->members[i]);
}

bool family_is_in(const struct service *service, const struct family *family, const char *state)
{
	bool are = true;

	for (int i = 0; i < FAMILY; i++)
		are &= status_is_in(service, family->members[i].pid, state);
	return are;
}

void family_end(struct family *family)
{
	for (int i = 0; i < FAMILY; i++)
		child_order(&family->members[i]);
	for (int i = 0; i < FAMILY; i++)
		ck_assert_int_eq(child_end(&family->members[i]), 0);
}

static int import_late(int progress, int orders)
{
	bool whole = true;
	struct offer offer;
	CUdeviceptr words;
	CUresult r;

	close(late[0]);
	driver_attach();
	report(progress);
	ordered(orders, true);
	if (read(late[1], &offer, sizeof(offer)) != sizeof(offer))
		return 1;
	r = cuIpcOpenMemHandle_v2(&words, offer.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	r = r ? r : is_whole(words, &whole);
	report(progress);
	return r ? 3 : whole ? 0 : 2;
}

struct child family_expect_late(void)
{
	struct child child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, late), 0);
	child = child_start(import_late);
	close(late[1]);
	child_wait(&child, 1);
	return child;
}
