// libnvidia-ml.so.1 of frmps: a program's view of the service's devices, in the place of NVML,
// which would show the service's processes. The program's limit is a device's memory, and programs
// of its user are a device's processes. NVIDIA's library answers the rest, if it is installed
// (real.c). No call makes a session: a program may ask before a fork, or use no CUDA at all.

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/nvml/abi.h"
#include "client/nvml/question.h"
#include "client/nvml/real.h"
#include "protocol/place.h"
#include "protocol/wire.h"

#define EXPORT __attribute__((visibility("default")))

/* Identifies this library (real.c). */
extern const char frmps_nvml;
EXPORT const char frmps_nvml = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;			   /* nvmlInit calls minus nvmlShutdown calls; guarded by `lock` */
static unsigned count;			   /* of devices; guarded by `lock` */
static nvml_device devices[PLACE_DEVICES]; /* the real library's, or addresses in `own`; the same */
static char own[PLACE_DEVICES];

/* Asks about all devices. A device without an answer has no UUID. @first: the first answer;
 * @ret_all: PLACE_DEVICES */
static void ask_all(const struct seen *first, struct seen *ret_all)
{
	for (unsigned i = 0; i < first->devices; i++) {
		ret_all[i].uuid[0] = '\0';
		if (i == first->number)
			ret_all[i] = *first;
		else if (i > first->number && question_ask(i, &ret_all[i]))
			ret_all[i].uuid[0] = '\0';
	}
}

static void take(const struct seen *all, unsigned most)
{
	nvml_device found[PLACE_DEVICES];

	if (!real_open(all, most, found))
		for (unsigned i = 0; i < most; i++)
			found[i] = (nvml_device)&own[i];
	pthread_mutex_lock(&lock);
	memcpy(devices, found, most * sizeof(*found));
	count = most;
	users++;
	pthread_mutex_unlock(&lock);
}

static int init(void)
{
	struct seen *all = malloc((PLACE_DEVICES + 1) * sizeof(*all)), *first;
	int r = all ? question_ask_any(&all[PLACE_DEVICES]) : -1;

	if (!r) {
		first = &all[PLACE_DEVICES];
		ask_all(first, all);
		take(all, first->devices);
	}
	free(all);
	return r ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

/* Return: a device by its number; NULL: the library is not initialised, or there is none */
static nvml_device device_at(unsigned number)
{
	nvml_device there;

	pthread_mutex_lock(&lock);
	there = users && number < count ? devices[number] : NULL;
	pthread_mutex_unlock(&lock);
	return there;
}

/* @ret_number: of the device. Return: NVML_SUCCESS for one of the service's devices */
static int find(nvml_device asked, const void *result, unsigned *ret_number)
{
	unsigned number = 0;

	if (!device_at(0))
		return NVML_ERROR_UNINITIALIZED;
	while (device_at(number) && device_at(number) != asked)
		number++;
	*ret_number = number;
	return device_at(number) && result ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static int check(nvml_device asked, const void *result)
{
	unsigned number;

	return find(asked, result, &number);
}

/* Asks the service. @ret_seen: the caller frees it if the result is NVML_SUCCESS */
static int look(nvml_device asked, const void *result, struct seen **ret_seen)
{
	struct seen *seen;
	unsigned number;
	int r = find(asked, result, &number);

	if (r)
		return r;
	seen = malloc(sizeof(*seen));
	if (seen && !question_ask(number, seen)) {
		*ret_seen = seen;
		return NVML_SUCCESS;
	}
	free(seen);
	return NVML_ERROR_UNKNOWN;
}

/* An entry point; its versions may share a body. */
#define ENTRY(name, parameters, arguments)                                                                   \
	EXPORT int name parameters;                                                                          \
	int name parameters                                                                                  \
	{                                                                                                    \
		return arguments;                                                                            \
	}

static int shut_down(void)
{
	bool open;

	pthread_mutex_lock(&lock);
	open = users;
	users -= open;
	pthread_mutex_unlock(&lock);
	return open ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

ENTRY(nvmlInit, (void), init())
ENTRY(nvmlInit_v2, (void), init())
ENTRY(nvmlInitWithFlags, (unsigned flags), ((void)flags, init()))
ENTRY(nvmlShutdown, (void), shut_down())

EXPORT const char *nvmlErrorString(int code);

const char *nvmlErrorString(int code)
{
	static const struct {
		int code;
		const char *text;
	} texts[] = {
		{NVML_SUCCESS, "Success"},
		{NVML_ERROR_UNINITIALIZED, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
		{NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
		{NVML_ERROR_NOT_FOUND, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
		{NVML_ERROR_DRIVER_NOT_LOADED, "There is no frmps service that answers"},
		{NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].code == code)
			return texts[i].text;
	return "Unknown Error";
}

/* Number of devices and their handles */

static int get_count(unsigned *ret_count)
{
	int r = check(device_at(0), ret_count);

	if (r)
		return r;
	pthread_mutex_lock(&lock);
	*ret_count = count;
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetCount, (unsigned *ret_count), get_count(ret_count))
ENTRY(nvmlDeviceGetCount_v2, (unsigned *ret_count), get_count(ret_count))

static int by_index(unsigned index, nvml_device *ret_device)
{
	nvml_device there = device_at(index);
	int r = device_at(0) ? check(there, ret_device) : NVML_ERROR_UNINITIALIZED;

	if (!r)
		*ret_device = there;
	return r;
}

ENTRY(nvmlDeviceGetHandleByIndex, (unsigned index, nvml_device *ret_device), by_index(index, ret_device))
ENTRY(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvml_device *ret_device), by_index(index, ret_device))

/* "0000:01:02.0" and "00000000:01:02.0" are the same place. */
static bool is_same_place(const char *one, const char *other)
{
	unsigned a[3], b[3];

	return sscanf(one, "%x:%x:%x", &a[0], &a[1], &a[2]) == 3 &&
	       sscanf(other, "%x:%x:%x", &b[0], &b[1], &b[2]) == 3 && !memcmp(a, b, sizeof(a));
}

/* A device without an answer is not found. */
static int by_text(const char *text, bool is_pci, nvml_device *ret_device)
{
	int r = check(device_at(0), text ? ret_device : NULL);
	nvml_device there;
	bool is_it = false;

	for (unsigned i = 0; !r && !is_it && (there = device_at(i)); i++) {
		struct seen *seen;

		if (look(there, ret_device, &seen))
			continue;
		is_it = is_pci ? is_same_place(text, seen->pci) : !strcasecmp(text, seen->uuid);
		free(seen);
	}
	if (!r && is_it)
		*ret_device = there;
	return r || is_it ? r : NVML_ERROR_NOT_FOUND;
}

ENTRY(nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *ret_device),
	by_text(uuid, false, ret_device))
ENTRY(nvmlDeviceGetHandleByPciBusId, (const char *pci, nvml_device *ret_device),
	by_text(pci, true, ret_device))
ENTRY(nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, nvml_device *ret_device),
	by_text(pci, true, ret_device))

static int get_index(nvml_device asked, unsigned *ret_index)
{
	unsigned number;
	int r = find(asked, ret_index, &number);

	if (!r)
		*ret_index = number;
	return r;
}

ENTRY(nvmlDeviceGetIndex, (nvml_device asked, unsigned *ret_index), get_index(asked, ret_index))

/* As cuDeviceGetP2PAttribute(). @flag: WIRE_PEER_* */
static int get_peer(nvml_device one, nvml_device other, unsigned flag, int *ret_status)
{
	struct seen *seen;
	unsigned number;
	int r = find(other, ret_status, &number);

	if (!r)
		r = look(one, ret_status, &seen);
	if (r)
		return r;
	*ret_status = seen->peers[number] & flag ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
	free(seen);
	return NVML_SUCCESS;
}

/* NVLink and other ways: the service knows nothing of them. */
static int get_real_peer(nvml_device one, nvml_device other, int way, int *ret_status)
{
	int r = check(one, ret_status);

	r = r ? r : check(other, ret_status);
	r = r ? r : real_peer_status(one, other, way, ret_status);
	if (r != NVML_ERROR_NOT_SUPPORTED)
		return r;
	*ret_status = NVML_P2P_STATUS_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

static int get_peer_status(nvml_device one, nvml_device other, int way, int *ret_status)
{
	switch (way) {
	case NVML_P2P_CAPS_READ:
	case NVML_P2P_CAPS_WRITE:
		return get_peer(one, other, WIRE_PEER_ACCESS, ret_status);
	case NVML_P2P_CAPS_ATOMICS:
		return get_peer(one, other, WIRE_PEER_ATOMICS, ret_status);
	default:
		return get_real_peer(one, other, way, ret_status);
	}
}

ENTRY(nvmlDeviceGetP2PStatus, (nvml_device one, nvml_device other, int way, int *ret_status),
	get_peer_status(one, other, way, ret_status))

/* Identity of the device */

static int put_text(const char *text, char *ret_text, unsigned size)
{
	size_t length = strlen(text);

	if (length >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(ret_text, text, length + 1);
	return NVML_SUCCESS;
}

static int get_text(nvml_device asked, bool is_uuid, char *ret_text, unsigned size)
{
	struct seen *seen;
	int r = look(asked, ret_text, &seen);

	if (r)
		return r;
	r = put_text(is_uuid ? seen->uuid : seen->name, ret_text, size);
	free(seen);
	return r;
}

ENTRY(nvmlDeviceGetName, (nvml_device asked, char *ret_name, unsigned size),
	get_text(asked, false, ret_name, size))
ENTRY(nvmlDeviceGetUUID, (nvml_device asked, char *ret_uuid, unsigned size),
	get_text(asked, true, ret_uuid, size))

static int get_pci(nvml_device asked, const void *result, struct nvml_pci *ret_pci)
{
	struct seen *seen;
	int r = look(asked, result, &seen);

	if (r)
		return r;
	*ret_pci = (struct nvml_pci){0};
	sscanf(seen->pci, "%x:%x:%x", &ret_pci->domain, &ret_pci->bus, &ret_pci->device);
	snprintf(ret_pci->bus_id_short, sizeof(ret_pci->bus_id_short), "%04X:%02X:%02X.0",
		ret_pci->domain & 0xffff, ret_pci->bus & 0xff, ret_pci->device & 0xff);
	snprintf(ret_pci->bus_id, sizeof(ret_pci->bus_id), "%08X:%02X:%02X.0", ret_pci->domain,
		ret_pci->bus & 0xff, ret_pci->device & 0xff);
	free(seen);
	return NVML_SUCCESS;
}

/* Both versions begin with the same fields. */
static int get_pci_v2(nvml_device asked, struct nvml_pci_v2 *ret_pci)
{
	struct nvml_pci pci;
	int r = get_pci(asked, ret_pci, &pci);

	if (r)
		return r;
	*ret_pci = (struct nvml_pci_v2){.domain = pci.domain, .bus = pci.bus, .device = pci.device};
	memcpy(ret_pci->bus_id_short, pci.bus_id_short, sizeof(pci.bus_id_short));
	return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetPciInfo, (nvml_device asked, struct nvml_pci_v2 *ret_pci), get_pci_v2(asked, ret_pci))
ENTRY(nvmlDeviceGetPciInfo_v2, (nvml_device asked, struct nvml_pci_v2 *ret_pci), get_pci_v2(asked, ret_pci))
ENTRY(nvmlDeviceGetPciInfo_v3, (nvml_device asked, struct nvml_pci *ret_pci),
	get_pci(asked, ret_pci, ret_pci))

static int get_capability(nvml_device asked, int *ret_major, int *ret_minor)
{
	struct seen *seen;
	int r = look(asked, ret_minor ? ret_major : NULL, &seen);

	if (r)
		return r;
	*ret_major = (int)seen->major;
	*ret_minor = (int)seen->minor;
	free(seen);
	return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetCudaComputeCapability, (nvml_device asked, int *ret_major, int *ret_minor),
	get_capability(asked, ret_major, ret_minor))

/* Of the first device that answers: there is one driver. */
static int get_version(int *ret_version)
{
	int r = check(device_at(0), ret_version);
	struct seen *seen;

	for (unsigned i = 0; !r && device_at(i); i++) {
		if (look(device_at(i), ret_version, &seen))
			continue;
		*ret_version = (int)seen->driver_version;
		free(seen);
		return NVML_SUCCESS;
	}
	return r ? r : NVML_ERROR_UNKNOWN;
}

ENTRY(nvmlSystemGetCudaDriverVersion, (int *ret_version), get_version(ret_version))
ENTRY(nvmlSystemGetCudaDriverVersion_v2, (int *ret_version), get_version(ret_version))

/*
 * Memory and processes
 */

static int get_memory(nvml_device asked, const void *result, struct nvml_memory *ret_memory)
{
	struct seen *seen;
	int r = look(asked, result, &seen);

	if (r)
		return r;
	/* A lowered limit applies only to programs that start later. */
	*ret_memory = (struct nvml_memory){seen->total_bytes,
		seen->used_bytes < seen->total_bytes ? seen->total_bytes - seen->used_bytes : 0,
		seen->used_bytes};
	free(seen);
	return NVML_SUCCESS;
}

static int get_memory_v2(nvml_device asked, struct nvml_memory_v2 *memory)
{
	struct nvml_memory plain;
	int r = get_memory(asked, memory, &plain);

	if (r)
		return r;
	memory->total = plain.total;
	memory->reserved = 0;
	memory->free = plain.free;
	memory->used = plain.used;
	return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetMemoryInfo, (nvml_device asked, struct nvml_memory *ret_memory),
	get_memory(asked, ret_memory, ret_memory))
ENTRY(nvmlDeviceGetMemoryInfo_v2, (nvml_device asked, struct nvml_memory_v2 *memory),
	get_memory_v2(asked, memory))

static void put_process(const struct seen_process *process, bool is_first, void *list, unsigned index)
{
	if (is_first)
		((struct nvml_process_v1 *)list)[index] =
			(struct nvml_process_v1){process->pid, process->bytes};
	else
		((struct nvml_process *)list)[index] =
			(struct nvml_process){process->pid, process->bytes, UINT32_MAX, UINT32_MAX};
}

/* @inout_count: room in the list; then the number of processes. @is_first: the call's first
 * version */
static int get_processes(nvml_device asked, unsigned *inout_count, void *list, bool is_first)
{
	struct seen *seen;
	int r = look(asked, inout_count, &seen);
	unsigned room;

	if (r)
		return r;
	room = *inout_count;
	*inout_count = seen->process_count;
	if (room < seen->process_count)
		r = NVML_ERROR_INSUFFICIENT_SIZE;
	else if (seen->process_count && !list)
		r = NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; !r && i < seen->process_count; i++)
		put_process(&seen->processes[i], is_first, list, i);
	free(seen);
	return r;
}

ENTRY(nvmlDeviceGetComputeRunningProcesses,
	(nvml_device asked, unsigned *inout_count, struct nvml_process_v1 *list),
	get_processes(asked, inout_count, list, true))
ENTRY(nvmlDeviceGetComputeRunningProcesses_v2,
	(nvml_device asked, unsigned *inout_count, struct nvml_process *list),
	get_processes(asked, inout_count, list, false))
ENTRY(nvmlDeviceGetComputeRunningProcesses_v3,
	(nvml_device asked, unsigned *inout_count, struct nvml_process *list),
	get_processes(asked, inout_count, list, false))

/* Processes of graphics, and clients of stock MPS. */
static int get_none(nvml_device asked, unsigned *ret_count)
{
	int r = check(asked, ret_count);

	if (!r)
		*ret_count = 0;
	return r;
}

#define NONE(name)                                                                                           \
	ENTRY(name, (nvml_device asked, unsigned *ret_count, void *list),                                    \
		((void)list, get_none(asked, ret_count)))
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)
