// See device.h. cuInit writes the snapshot on a single thread, before the process counts as
// initialised; any thread reads it afterwards.

#include "client/state/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/connect.h"
#include "protocol/uuid.h"

static struct client_device device;
static int visible_count;

/* A number ends with its digits, whatever follows. */
static int number_index(const char *entry, size_t length, int count)
{
	char *end;
	long n = strtol(entry, &end, 10);

	return length > 0 && end != entry && n >= 0 && n < count ? (int)n : -1;
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

int device_ordinal(const char *visible, int index, int count, const uint8_t (*uuids)[16])
{
	bool by_uuid;
	int place = -1;

	if (!visible)
		return index;
	while (is_blank(*visible))
		++visible;
	by_uuid = *visible == 'G'; /* the first entry determines the kind of all */
	for (int ordinal = 0; visible; ++ordinal) {
		const char *entry;
		size_t length;
		int named;

		visible = next_entry(visible, &entry, &length);
		named = by_uuid ? uuid_find(entry, length, count, uuids) : number_index(entry, length, count);
		if (named < 0)
			break;
		if (named == index && place >= 0)
			return DEVICE_TWICE;
		if (named == index)
			place = ordinal;
	}
	return place;
}

CUresult device_check_location(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_get(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

bool device_all_hidden(const char *visible)
{
	const char *entry;
	size_t length;

	if (!visible)
		return false;
	next_entry(visible, &entry, &length);
	return length == 0 || *entry == '-';
}

bool device_is_mig(const char *visible)
{
	const char *entry;
	size_t length;

	if (!visible)
		return false;
	next_entry(visible, &entry, &length);
	return strncmp(entry, "MIG-", 4) == 0;
}

/* Copies at most `room` elements. Return: their number. */
static uint32_t copy_some(void *to, uint32_t room, const void *from, uint32_t count, size_t element_bytes)
{
	if (count > room)
		count = room;
	if (count > 0)
		memcpy(to, from, count * element_bytes);
	return count;
}

/* Abilities of the device that this library does not offer: see the calls for each. */
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
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0},
	{CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
	{CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0},
	{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0},
};

static void impose_one(int32_t attribute, int32_t value)
{
	if ((uint32_t)attribute < device.attribute_count)
		device.attributes[attribute] = value;
}

static void impose(void)
{
	for (size_t i = 0; i < sizeof(imposed) / sizeof(*imposed); ++i)
		impose_one(imposed[i].attribute, imposed[i].value);
	/* Whatever the device can: the service makes it of pinned memory. */
	impose_one(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
		connection.has_host_memory);
	impose_one(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, connection.has_host_memory);
}

static void take(const struct wire_device *from)
{
	device = (struct client_device){
		.total_bytes = from->total_bytes,
		.priority_least = from->priority_least,
		.priority_greatest = from->priority_greatest,
	};
	snprintf(device.name, sizeof(device.name), "%s", from->name);
	copy_some(device.uuid, 16, from->uuid.at, from->uuid.count, 1);
	device.attribute_count = copy_some(device.attributes, DEVICE_ATTRIBUTES_MAX, from->attributes.at,
		from->attributes.count, sizeof(*device.attributes));
	impose();
	device.limit_count = copy_some(device.limits, DEVICE_LIMITS_MAX, from->limits.at, from->limits.count,
		sizeof(*device.limits));
}

CUresult device_snapshot(const struct wire_welcome *welcome, const char *visible)
{
	uint8_t uuids[WIRE_DEVICES_MAX][16] = {0};

	for (uint32_t i = 0; i < welcome->device_count; ++i) {
		const struct wire_bytes *uuid = &welcome->devices[i].uuid;

		copy_some(uuids[i], 16, uuid->at, uuid->count, 1);
	}
	/* The session's work goes to the first device of the Welcome, whatever else the service
	 * has. */
	take(&welcome->devices[0]);
	for (uint32_t i = 0; i < welcome->device_count; ++i)
		if (device_ordinal(visible, (int)i, (int)welcome->device_count,
			    (const uint8_t(*)[16])uuids) == DEVICE_TWICE)
			return CUDA_ERROR_INVALID_DEVICE;
	visible_count =
		device_ordinal(visible, 0, (int)welcome->device_count, (const uint8_t(*)[16])uuids) >= 0;
	return visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int device_count(void)
{
	return visible_count;
}

const struct client_device *device_get(int ordinal)
{
	return ordinal == 0 && visible_count == 1 ? &device : NULL;
}

uint32_t device_sms(void)
{
	struct shm_server_header *server = connection.view.server;

	return server ? (word_relaxed(&server->share) & SHM_SHARE_SMS_MASK) >> SHM_SHARE_SMS_SHIFT : 0;
}

CUresult device_attribute(const struct client_device *d, int attribute, int *ret_value)
{
	uint32_t sms;

	if (attribute <= 0 || (uint32_t)attribute >= d->attribute_count)
		return CUDA_ERROR_INVALID_VALUE;
	sms = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? device_sms() : 0;
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
