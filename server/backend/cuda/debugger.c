// See debugger.h. The driver's requests to the kernel-mode driver go through this process's ioctl()
// (contain.c), which passes them to debugger_note(): the debugger object, the pieces of memory that
// the driver makes for itself, and their mappings on the device. Memory of programs is imported and
// never noted, so the tables stay small.
//
// Names and numbers are those of NVIDIA's open kernel modules (nvos.h, nv-ioctl.h, cl0005.h,
// ctrl83dedebug.h, uvm_ioctl.h). No public header explains the notifications: of 32 that were tried
// on an H200 (driver 580), 1 and 4 came for each class of fault, and 4 as a stop is done.
//
// The driver's threads write the tables, and the thread that handles exceptions reads them.

#include "server/backend/cuda/debugger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "server/backend/cuda/warps.h"
#include "server/grow.h"

#define CLASS_DEBUGGER	    0x83deu /* GT200_DEBUGGER */
#define CLASS_SYSTEM_MEMORY 0x3eu   /* NV01_MEMORY_SYSTEM */
#define CLASS_DEVICE_MEMORY 0x40u   /* NV01_MEMORY_LOCAL_USER */
#define CLASS_EVENT	    0x79u   /* NV01_EVENT_OS_EVENT */

#define DRIVER_REGISTER 0xc9 /* NV_ESC_REGISTER_FD */
#define DRIVER_EVENT	0xce /* NV_ESC_ALLOC_OS_EVENT */
#define UVM_MAP		33   /* UVM_MAP_EXTERNAL_ALLOCATION */
#define UVM_FREE	34   /* UVM_FREE */

#define CONTROL_READ_STATES 0x83de030cu /* NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES */
#define CONTROL_CLEAR_STATE 0x83de030fu /* NV83DE_CTRL_CMD_DEBUG_CLEAR_SINGLE_SM_ERROR_STATE */
#define CONTROL_CLEAR_ALL   0x83de0310u /* NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES */
#define CONTROL_WRITE	    0x83de0316u /* NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY */

#define NOTIFICATION_FAULT 1u
#define NOTIFICATION_STOP  4u
#define NOTIFICATION_POLL  0x10000000u /* poll() resets the event, which carries no data */
#define EVENT_OBJECT	   0xf2a50000u /* and the notification's number */

#define PAGE UINT64_C(4096)
/* The driver's own code is a single piece of that size. */
#define SEARCH_MAX (UINT64_C(2) << 20)
/* A stop that has to preempt first is announced when done, and then requested again. Beside kernels
 * without end that takes 9 ms for 16 warps and 40 ms for 1024. Requests without a pause took up to
 * 250 ms (H200). */
#define STOP_TRIES   20
#define STOP_WAIT_MS 100

/* NVOS21_PARAMETERS, NVOS64_PARAMETERS */
struct alloc {
	struct control_alloc head;
	uint64_t parameters;
	uint64_t rights; /* the longer of the two */
	uint32_t size, flags, status, pad;
};

/* NV_MEMORY_ALLOCATION_PARAMS, as far as needed here. */
struct memory_parameters {
	uint32_t pad[16];
	uint64_t size;
};

/* UVM_MAP_EXTERNAL_ALLOCATION_PARAMS */
#define UVM_DEVICES_MAX 256
struct uvm_map {
	uint64_t base, length, offset;
	uint8_t devices[UVM_DEVICES_MAX][36];
	uint64_t device_count;
	int32_t fd;
	uint32_t client, memory, status;
};

struct os_event {
	uint32_t client, device, fd, status;
};

struct event_parameters {
	uint32_t client, source, class, index;
	uint64_t data;
};

struct states {
	uint32_t channel, count;
	struct debugger_state at[DEBUGGER_STATES_MAX];
	uint32_t fault;
	struct {
		uint8_t valid;
		uint32_t info;
	} mmu;
	uint32_t first;
};

struct memory {
	uint32_t client, object, class;
	uint64_t size;
};

struct mapping {
	uint64_t base, length, offset;
	uint32_t client, memory;
};

static struct {
	pthread_mutex_t lock;
	control_execute_fn *execute;
	int fd; /* of the driver's own, on which the objects were made */
	uint32_t client, device, object;
	char path[64]; /* of the device that gives events; empty: not known */
	int stop;      /* readable when a stop is done */
	struct memory *memories;
	struct mapping *mappings;
	uint32_t memory_count, memory_room, mapping_count, mapping_room;
	void *area;
} debugger = {.lock = PTHREAD_MUTEX_INITIALIZER, .execute = control_execute};

void debugger_reset(control_execute_fn *execute)
{
	debugger.execute = execute;
	debugger.object = 0;
	debugger.path[0] = '\0';
	debugger.memory_count = debugger.mapping_count = 0;
	debugger.area = NULL;
}

/* ---- requests of the driver ---- */

static void note_memory(const struct alloc *alloc)
{
	const struct memory_parameters *parameters = (const void *)(uintptr_t)alloc->parameters;

	/* Without memory the notes are incomplete. */
	if (parameters && grow(&debugger.memories, debugger.memory_count, &debugger.memory_room,
				  sizeof(*debugger.memories)))
		debugger.memories[debugger.memory_count++] = (struct memory){
			alloc->head.client, alloc->head.object, alloc->head.class, parameters->size};
}

static void note_object(int fd, const struct alloc *alloc)
{
	if (alloc->head.class == CLASS_SYSTEM_MEMORY || alloc->head.class == CLASS_DEVICE_MEMORY)
		note_memory(alloc);
	if (alloc->head.class != CLASS_DEBUGGER || debugger.object)
		return;
	debugger.fd = fd;
	debugger.client = alloc->head.client;
	debugger.object = alloc->head.object;
}

/* Two ranges; neither reaches the end of all addresses. */
static bool overlap(const struct mapping *mapping, uint64_t base, uint64_t length)
{
	return base < mapping->base + mapping->length && mapping->base < base + length;
}

static bool is_of(const struct mapping *mapping, const struct control_free *freed)
{
	return mapping->client == freed->client && mapping->memory == freed->object;
}

/* Mappings of an object, or, without an object, in a range: the driver does not report the end of
 * all mappings. */
static void forget_mappings(const struct control_free *freed, uint64_t base, uint64_t length)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < debugger.mapping_count; i++) {
		const struct mapping *mapping = &debugger.mappings[i];

		if (freed ? !is_of(mapping, freed) : !overlap(mapping, base, length))
			debugger.mappings[left++] = *mapping;
	}
	debugger.mapping_count = left;
}

static void forget_object(const struct control_free *freed)
{
	uint32_t left = 0;

	forget_mappings(freed, 0, 0);
	for (uint32_t i = 0; i < debugger.memory_count; i++)
		if (debugger.memories[i].client != freed->client ||
			debugger.memories[i].object != freed->object)
			debugger.memories[left++] = debugger.memories[i];
	debugger.memory_count = left;
	if (debugger.client == freed->client && debugger.object == freed->object)
		debugger.object = 0;
}

static const struct memory *find_memory(uint32_t client, uint32_t object)
{
	for (uint32_t i = 0; i < debugger.memory_count; i++)
		if (debugger.memories[i].client == client && debugger.memories[i].object == object)
			return &debugger.memories[i];
	return NULL;
}

/* The memory should be at the same address for processor and device, which is not taken on trust.
 * Some containers forbid the first way. */
static bool is_readable(uint64_t address)
{
	uint8_t first, last;
	struct iovec local[] = {{&first, 1}, {&last, 1}};
	struct iovec remote[] = {
		{(void *)(uintptr_t)address, 1}, {(void *)(uintptr_t)(address + WARPS_BYTES - 1), 1}};

	if (process_vm_readv(getpid(), local, 2, remote, 2, 0) == 2)
		return true;
	return (errno == EPERM || errno == ENOSYS) && address % PAGE == 0 &&
	       msync((void *)(uintptr_t)address, WARPS_BYTES, MS_ASYNC) == 0;
}

static void note_mapping(const struct uvm_map *map)
{
	const struct memory *memory = map->status ? NULL : find_memory(map->client, map->memory);

	if (!memory)
		return;
	forget_mappings(NULL, map->base, map->length);
	if (grow(&debugger.mappings, debugger.mapping_count, &debugger.mapping_room,
		    sizeof(*debugger.mappings)))
		debugger.mappings[debugger.mapping_count++] =
			(struct mapping){map->base, map->length, map->offset, map->client, map->memory};
	if (memory->class == CLASS_SYSTEM_MEMORY &&
		memory->size == ((WARPS_BYTES + PAGE - 1) & ~(PAGE - 1)) && is_readable(map->base))
		debugger.area = (void *)(uintptr_t)map->base;
}

static void note_event(int fd, const struct os_event *event)
{
	char link[32];
	ssize_t length;

	if (debugger.path[0])
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, debugger.path, sizeof(debugger.path) - 1);
	debugger.path[length > 0 ? length : 0] = '\0';
	debugger.device = event->device;
}

/* Of the two forms only the status lies elsewhere. */
static bool has_succeeded(const struct alloc *alloc, unsigned long request)
{
	const uint32_t *words = (const uint32_t *)(const void *)alloc;

	return _IOC_SIZE(request) == 32 ? !words[7] : _IOC_SIZE(request) == 48 && !words[10];
}

static void note(int fd, unsigned long request, const void *argument)
{
	if (request == UVM_MAP)
		note_mapping(argument);
	else if (request == UVM_FREE)
		forget_mappings(NULL, *(const uint64_t *)argument, 1);
	else if (_IOC_TYPE(request) != DRIVER_TYPE)
		return;
	else if (_IOC_NR(request) == DRIVER_ALLOC && has_succeeded(argument, request))
		note_object(fd, argument);
	else if (_IOC_NR(request) == DRIVER_FREE)
		forget_object(argument);
	else if (_IOC_NR(request) == DRIVER_EVENT)
		note_event(fd, argument);
}

void debugger_note(int fd, unsigned long request, const void *argument)
{
	if (!argument || (_IOC_TYPE(request) != DRIVER_TYPE && request != UVM_MAP && request != UVM_FREE))
		return;
	pthread_mutex_lock(&debugger.lock);
	note(fd, request, argument);
	pthread_mutex_unlock(&debugger.lock);
}

void *debugger_area(void)
{
	return debugger.object ? debugger.area : NULL;
}

/* ---- requests to the debugger object ---- */

static bool control(uint32_t command, void *parameters, uint32_t size)
{
	struct control control = {.client = debugger.client,
		.object = debugger.object,
		.command = command,
		.parameters = (uintptr_t)parameters,
		.size = size,
		.status = UINT32_MAX}; /* until the answer */

	return debugger.object &&
	       !debugger.execute(debugger.fd, _IOWR(DRIVER_TYPE, DRIVER_CONTROL, struct control), &control) &&
	       !control.status;
}

static int make_event(int fd, uint32_t notification)
{
	struct os_event event = {debugger.client, debugger.device, (uint32_t)fd, UINT32_MAX};
	struct event_parameters parameters = {debugger.client, debugger.object, CLASS_EVENT,
		notification | NOTIFICATION_POLL, (uint64_t)fd};
	struct alloc alloc = {
		.head = {debugger.client, debugger.object, EVENT_OBJECT + notification, CLASS_EVENT},
		.parameters = (uintptr_t)&parameters,
		.size = sizeof(parameters),
		.status = UINT32_MAX};
	uint32_t registered = (uint32_t)debugger.fd;

	if (debugger.execute(fd, _IOWR(DRIVER_TYPE, DRIVER_REGISTER, uint32_t), &registered))
		return -errno;
	if (debugger.execute(fd, _IOWR(DRIVER_TYPE, DRIVER_EVENT, struct os_event), &event) || event.status)
		return -EIO;
	if (debugger.execute(debugger.fd, _IOWR(DRIVER_TYPE, DRIVER_ALLOC, struct alloc), &alloc) ||
		alloc.status)
		return -EIO;
	return 0;
}

/* Return: a descriptor that poll() waits for and resets, or -errno */
static int open_event(uint32_t notification)
{
	/* With O_NONBLOCK the kernel-mode driver would not allow waiting for the descriptor. */
	int fd = open(debugger.path, O_RDWR | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = make_event(fd, notification);
	if (error)
		close(fd);
	return error ? error : fd;
}

int debugger_event(void)
{
	int fault;

	if (!debugger.object || !debugger.path[0])
		return -ENODEV;
	debugger.stop = open_event(NOTIFICATION_STOP);
	if (debugger.stop < 0)
		return debugger.stop;
	fault = open_event(NOTIFICATION_FAULT);
	if (fault < 0)
		close(debugger.stop);
	return fault;
}

void debugger_no_event(int event)
{
	close(event);
	close(debugger.stop);
}

bool debugger_stop(void)
{
	struct pollfd done = {.fd = debugger.stop, .events = POLLIN | POLLPRI};
	uint32_t answer[2] = {1, 0}; /* [0] 1: still under way; [1] the running channel */

	poll(&done, 1, 0); /* an earlier event */
	for (int i = 0; i < STOP_TRIES && answer[0]; i++) {
		if (i)
			poll(&done, 1, STOP_WAIT_MS);
		if (!control(CONTROL_STOP, answer, sizeof(answer)))
			return false;
	}
	return !answer[0];
}

bool debugger_resume(void)
{
	return control(CONTROL_LET_GO, NULL, 0);
}

bool debugger_read_states(uint32_t first, uint32_t count, struct debugger_state *ret_states)
{
	struct states states = {.count = count, .first = first};

	if (!control(CONTROL_READ_STATES, &states, sizeof(states)))
		return false;
	memcpy(ret_states, states.at, count * sizeof(*ret_states));
	return true;
}

bool debugger_clear_state(uint32_t sm)
{
	uint32_t which[2] = {0, sm}; /* any channel */

	return control(CONTROL_CLEAR_STATE, which, sizeof(which));
}

bool debugger_clear_states(uint32_t count)
{
	uint32_t which[2] = {0, count}; /* any channel */

	return control(CONTROL_CLEAR_ALL, which, sizeof(which));
}

/* Memory that another client has mapped is out of reach: its number may be that of other memory
 * here.
 * @ret_access: the memory and the place inside. Return: true if the range is inside a single
 * mapping */
static bool find(uint64_t address, uint64_t count, struct control_read *ret_access)
{
	bool found = false;

	pthread_mutex_lock(&debugger.lock);
	for (uint32_t i = 0; i < debugger.mapping_count && !found; i++) {
		const struct mapping *mapping = &debugger.mappings[i];

		found = mapping->client == debugger.client && address >= mapping->base &&
			count <= mapping->length && address - mapping->base <= mapping->length - count;
		if (found)
			*ret_access = (struct control_read){.memory = mapping->memory,
				.offset = mapping->offset + (address - mapping->base)};
	}
	pthread_mutex_unlock(&debugger.lock);
	return found;
}

static bool access_memory(uint32_t command, uint64_t address, const void *bytes, uint32_t count)
{
	struct control_read access;

	if (!find(address, count, &access))
		return false;
	access.length = count;
	access.buffer = (uintptr_t)bytes;
	return control(command, &access, sizeof(access));
}

bool debugger_read(uint64_t address, void *ret_bytes, uint32_t count)
{
	return access_memory(CONTROL_READ, address, ret_bytes, count);
}

bool debugger_write(uint64_t address, const void *bytes, uint32_t count)
{
	return access_memory(CONTROL_WRITE, address, bytes, count);
}

static bool show(const struct mapping *mapping, uint8_t *bytes, debugger_look_fn *look, void *context)
{
	return mapping->length <= SEARCH_MAX &&
	       debugger_read(mapping->base, bytes, (uint32_t)mapping->length) &&
	       look(context, mapping->base, bytes, mapping->length);
}

bool debugger_search(debugger_look_fn *look, void *context)
{
	uint8_t *bytes = malloc(SEARCH_MAX);
	bool found = false;

	for (uint32_t i = 0; bytes && i < debugger.mapping_count && !found; i++) {
		const struct memory *memory = find_memory(debugger.client, debugger.mappings[i].memory);

		found = memory && memory->class == CLASS_DEVICE_MEMORY &&
			show(&debugger.mappings[i], bytes, look, context);
	}
	free(bytes);
	return found;
}

bool debugger_has(uint64_t address, uint64_t count)
{
	struct control_read unused;

	return find(address, count, &unused);
}
