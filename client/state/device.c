// See device.h. cuInit lists the devices on a single thread, before the process counts as
// initialised; any thread reads them afterwards. A device gets its final description when its
// session begins, in a place of its own: whoever holds the former one may go on reading.

#include "client/state/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/state/session.h"
#include "protocol/place.h"
#include "protocol/uuid.h"
#include "shm/order.h"

static struct client_device found[PLACE_DEVICES]; /* by number */
static bool is_found[PLACE_DEVICES];
static unsigned count;						   /* of the service's devices */
static const struct client_device *_Atomic visible[PLACE_DEVICES]; /* by ordinal */
static int visible_count;

/* A number ends with its digits, whatever follows. */
static int number_index(const char *entry, size_t length, int most)
{
	char *end;
	long n = strtol(entry, &end, 10);

	return length > 0 && end != entry && n >= 0 && n < most ? (int)n : -1;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The next entry of the list, without blanks. Return: the rest of the list, NULL after the last
 * entry. */
static const char *next_entry(const char *list, const char **ret_entry, size_t *ret_length)
{
	const char *end = list + strcspn(list, ",");
	const char *last = end;

	while (list < last && is_blank(*list))
		++list;
	while (last > list && is_blank(last[-1]))
		--last;
	*ret_entry = list;
	*ret_length = (size_t)(last - list);
	return *end ? end + 1 : NULL;
}

int device_ordinal(const char *list, int index, int most, const uint8_t (*uuids)[16])
{
	bool by_uuid;
	int place = -1;

	if (!list)
		return index;
	while (is_blank(*list))
		++list;
	by_uuid = *list == 'G'; /* the first entry determines the kind of all */
	for (int ordinal = 0; list; ++ordinal) {
		const char *entry;
		size_t length;
		int named;

		list = next_entry(list, &entry, &length);
		named = by_uuid ? uuid_find(entry, length, most, uuids) : number_index(entry, length, most);
		if (named < 0)
			break;
		if (named == index && place >= 0)
			return DEVICE_TWICE;
		if (named == index)
			place = ordinal;
	}
	return place;
}

unsigned device_named_first(const char *list)
{
	const char *entry;
	size_t length;
	int number;

	if (!list)
		return 0;
	next_entry(list, &entry, &length);
	number = number_index(entry, length, PLACE_DEVICES);
	return number > 0 ? (unsigned)number : 0;
}

bool device_may_be_seen(const char *list, unsigned number, unsigned most)
{
	static const uint8_t none[PLACE_DEVICES][16];

	return !list || list[strspn(list, " \t")] == 'G' ||
	       device_ordinal(list, (int)number, (int)most, none) != -1;
}

int32_t device_clamp_priority(int32_t priority)
{
	const struct client_device *device = device_get(device_own());

	if (!device)
		return priority;
	if (priority > device->priority_least)
		return device->priority_least;
	return priority < device->priority_greatest ? device->priority_greatest : priority;
}

bool device_is_node(int id)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", id);
	return id == 0 || (id > 0 && access(path, F_OK) == 0);
}

CUresult device_check_location(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_check(location->id);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

bool device_all_hidden(const char *list)
{
	const char *entry;
	size_t length;

	if (!list)
		return false;
	next_entry(list, &entry, &length);
	return length == 0 || *entry == '-';
}

bool device_is_mig(const char *list)
{
	const char *entry;
	size_t length;

	if (!list)
		return false;
	next_entry(list, &entry, &length);
	return strncmp(entry, "MIG-", 4) == 0;
}

/* Copies at most `room` elements. Return: their number. */
static uint32_t copy_some(void *to, uint32_t room, const void *from, uint32_t elements, size_t element_bytes)
{
	if (elements > room)
		elements = room;
	if (elements > 0)
		memcpy(to, from, elements * element_bytes);
	return elements;
}

/* Abilities that differ from the device's: most are not offered, see the calls for each. */
static const struct {
	int32_t attribute, value;
} imposed[] = {
	{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
	{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
	{CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0},
	{CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, CU_DEVICE_NUMA_CONFIG_NONE},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0},
	{CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
	{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0},
	{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0},
	{CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
	{CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0},
	{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0},
	/* The service makes it of pinned memory, whatever the device can. */
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 1},
};

static void impose(struct client_device *device)
{
	for (size_t i = 0; i < sizeof(imposed) / sizeof(*imposed); ++i)
		if ((uint32_t)imposed[i].attribute < device->attribute_count)
			device->attributes[imposed[i].attribute] = imposed[i].value;
}

static void take(struct client_device *device, unsigned number, const struct wire_device *from)
{
	*device = (struct client_device){
		.number = number,
		.total_bytes = from->total_bytes,
		.priority_least = from->priority_least,
		.priority_greatest = from->priority_greatest,
		.sm_granule = from->sm_granule,
		.sm_units = from->sm_units,
	};
	snprintf(device->name, sizeof(device->name), "%s", from->name);
	copy_some(device->uuid, 16, from->uuid.at, from->uuid.count, 1);
	device->attribute_count = copy_some(device->attributes, DEVICE_ATTRIBUTES_MAX, from->attributes.at,
		from->attributes.count, sizeof(*device->attributes));
	impose(device);
	copy_some(device->peers, PLACE_DEVICES, from->peers.at, from->peers.count, 1);
	device->limit_count = copy_some(device->limits, DEVICE_LIMITS_MAX, from->limits.at,
		from->limits.count, sizeof(*device->limits));
}

void device_begin(void)
{
	count = 0;
	memset(is_found, 0, sizeof(is_found));
	visible_count = 0;
}

void device_add(unsigned number, unsigned of, const struct wire_device *from, uint64_t memory_wish)
{
	if (number >= of || of > PLACE_DEVICES)
		return;
	count = of > count ? of : count;
	take(&found[number], number, from);
	if (memory_wish && memory_wish < found[number].total_bytes)
		found[number].total_bytes = memory_wish;
	is_found[number] = true;
}

unsigned device_listed(void)
{
	return count;
}

bool device_is_known(unsigned number)
{
	return number < count && is_found[number];
}

/* Makes visible what the list names. A device that the service lacks at the moment is no valid
 * entry, and without a list the others move up: both as with the driver. */
CUresult device_choose(const char *list)
{
	const struct client_device *chosen[PLACE_DEVICES] = {0};
	uint8_t uuids[PLACE_DEVICES][16] = {0};
	int ordinal;

	for (unsigned i = 0; i < count; ++i)
		memcpy(uuids[i], found[i].uuid, sizeof(uuids[i]));
	for (unsigned i = 0; i < count; ++i) {
		if (!list && !is_found[i])
			continue;
		ordinal = list ? device_ordinal(list, (int)i, (int)count, (const uint8_t(*)[16])uuids)
			       : visible_count++;
		if (ordinal == DEVICE_TWICE)
			return CUDA_ERROR_INVALID_DEVICE;
		if (ordinal >= 0 && is_found[i])
			chosen[ordinal] = &found[i];
	}
	for (visible_count = 0; visible_count < (int)count && chosen[visible_count]; ++visible_count)
		atomic_store(&visible[visible_count], chosen[visible_count]);
	return visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

void device_settle(int ordinal, const struct wire_device *from)
{
	const struct client_device *before = device_get(ordinal);

	take(&sessions[ordinal].device, before->number, from);
	atomic_store(&visible[ordinal], &sessions[ordinal].device);
}

int device_of_number(unsigned number)
{
	for (int i = 0; i < visible_count; ++i)
		if (atomic_load(&visible[i])->number == number)
			return i;
	return -1;
}

int device_own(void)
{
	return session_ordinal(session_self());
}

CUresult device_check(int ordinal)
{
	return device_get(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int device_count(void)
{
	return visible_count;
}

const struct client_device *device_get(int ordinal)
{
	return ordinal >= 0 && ordinal < visible_count ? atomic_load(&visible[ordinal]) : NULL;
}

static uint32_t granted_sms(const struct session *session)
{
	struct shm_server_header *server = session->connection.view.server;

	return server ? (word_relaxed(&server->share) & SHM_SHARE_SMS_MASK) >> SHM_SHARE_SMS_SHIFT : 0;
}

uint32_t device_sms(void)
{
	return granted_sms(session_self());
}

/* As device_sms(), of any device; 0 also without a session on it. */
static uint32_t sms_of(const struct client_device *d)
{
	SESSION_FOREACH (session)
		if (d == &session->device)
			return granted_sms(session);
	return 0;
}

CUresult device_attribute(const struct client_device *d, int attribute, int *ret_value)
{
	uint32_t sms;

	if (attribute <= 0 || (uint32_t)attribute >= d->attribute_count)
		return CUDA_ERROR_INVALID_VALUE;
	sms = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? sms_of(d) : 0;
	*ret_value = sms ? (int)sms : d->attributes[attribute];
	return CUDA_SUCCESS;
}

static int32_t attribute_or_zero(const struct client_device *d, uint32_t attribute)
{
	return attribute < d->attribute_count ? d->attributes[attribute] : 0;
}

bool device_identity(
	int ordinal, uint8_t ret_uuid[16], int32_t *ret_domain, int32_t *ret_bus, int32_t *ret_device)
{
	const struct client_device *d = device_get(ordinal);

	if (!d)
		return false;
	memcpy(ret_uuid, d->uuid, sizeof(d->uuid));
	*ret_domain = attribute_or_zero(d, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
	*ret_bus = attribute_or_zero(d, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
	*ret_device = attribute_or_zero(d, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
	return true;
}
