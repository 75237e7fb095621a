// See ipc.h. Opening is rare: a single lock, held while the service is asked. Memory is unmapped
// without the lock, because that waits for the device. A thread that opens the memory again
// meanwhile maps it elsewhere.

#include "client/state/ipc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/device.h"
#include "client/state/host.h"
#include "client/state/memory.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/space.h"
#include "client/state/virtual.h"

#define MAGIC "frmpsipc"

struct content {
	char magic[8];
	uint64_t session; /* of the exporter */
	struct ipc_part part;
};
_Static_assert(sizeof(struct content) <= sizeof(CUipcMemHandle), "a handle holds what it says");

/* Memory that is mapped in this process. */
struct place {
	struct session *session;
	struct virtual_token token;
	CUmemGenericAllocationHandle handle;
	uint64_t address, bytes;
	uint32_t opened; /* all open handles into the memory */
	struct place *next;
};

/* An allocation inside a place, as opened by a context. */
struct entry {
	CUcontext context;
	uint64_t address, bytes;
	uint32_t opened;
	struct place *place;
	struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place *places;
/* Held for a look or a change only: questions about pointers do not wait for the service. */
static pthread_mutex_t entry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* changed under both locks */

CUresult ipc_describe(uint64_t address, enum range_kind kind, struct ipc_part *ret_part)
{
	uint64_t begin, bytes;
	struct range range;
	CUresult r;

	int e = kind == RANGE_POOL_HOST ? host_export(address, kind, &range)
					: memory_export(address, kind, &range);

	if (e != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = virtual_token_of(range.address, &ret_part->token, &begin, &bytes);
	if (r != CUDA_SUCCESS)
		return r;
	ret_part->offset = range.address - begin;
	ret_part->bytes = range.bytes;
	return CUDA_SUCCESS;
}

CUresult ipc_export(uint64_t address, CUipcMemHandle *ret_handle)
{
	struct content content = {.magic = MAGIC, .session = session_self()->connection.session};
	CUresult r = ipc_describe(address, RANGE_DEVICE, &content.part);

	if (r != CUDA_SUCCESS)
		return r;
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &content, sizeof(content));
	return CUDA_SUCCESS;
}

static CUresult map_place(struct place *place)
{
	CUmemAllocationProp properties;
	CUresult r = virtual_import_token(&place->token, &place->handle, &place->bytes);

	if (r != CUDA_SUCCESS)
		return r;
	r = virtual_properties(place->handle, &properties);
	if (r == CUDA_SUCCESS)
		r = virtual_is_host(&properties.location)
			    ? space_reserve_host(place->bytes, 0, &place->address)
			    : space_reserve(place->bytes, 0, 0, &place->address);
	if (r == CUDA_SUCCESS) {
		r = virtual_map(place->address, place->bytes, place->handle);
		if (r == CUDA_SUCCESS)
			return virtual_set_access(place->address, place->bytes, (unsigned)device_own(),
				CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		space_free(place->address, place->bytes);
	}
	virtual_release(place->handle);
	return r;
}

/* Unmaps a place that is out of the list. Without the lock. NULL is allowed. */
static CUresult unmap_place(struct place *place)
{
	CUresult r;

	if (!place)
		return CUDA_SUCCESS;
	SESSION_SCOPE(place->session);
	r = virtual_unmap(place->address, place->bytes);
	virtual_release(place->handle);
	if (r == CUDA_SUCCESS)
		space_free(place->address, place->bytes);
	free(place);
	return r;
}

/* The mapping of some memory; makes the mapping if necessary. Under the lock. */
static CUresult find_place(const struct virtual_token *token, struct place **ret_place)
{
	struct place *place = places;
	CUresult r;

	while (place &&
		(place->session != session_self() || memcmp(&place->token, token, sizeof(*token)) != 0))
		place = place->next;
	if (!place) {
		place = calloc(1, sizeof(*place));
		if (!place)
			return CUDA_ERROR_OUT_OF_MEMORY;
		place->session = session_self();
		place->token = *token;
		r = map_place(place);
		if (r != CUDA_SUCCESS) {
			free(place);
			return r;
		}
		place->next = places;
		places = place;
	}
	*ret_place = place;
	return CUDA_SUCCESS;
}

/* Removes a place from the list if no handle into it is open. Return: the place, for unmap_place();
 * NULL if a handle is open. Under the lock. */
static struct place *take_unused(struct place *place)
{
	struct place **link = &places;

	if (place->opened)
		return NULL;
	while (*link != place)
		link = &(*link)->next;
	*link = place->next;
	return place;
}

static struct entry *find_entry(CUcontext context, uint64_t address)
{
	struct entry *entry = entries;

	while (entry && (entry->address != address || entry->context != context))
		entry = entry->next;
	return entry;
}

/* Under the lock. */
static CUresult open_in(
	CUcontext context, struct place *place, const struct ipc_part *part, CUdeviceptr *ret_address)
{
	struct entry *entry;

	if (part->offset > place->bytes || part->bytes > place->bytes - part->offset)
		return CUDA_ERROR_INVALID_HANDLE;
	entry = find_entry(context, place->address + part->offset);
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*entry = (struct entry){.context = context,
			.address = place->address + part->offset,
			.bytes = part->bytes,
			.place = place,
			.next = entries};
		pthread_mutex_lock(&entry_lock);
		entries = entry;
		pthread_mutex_unlock(&entry_lock);
	}
	entry->opened++;
	place->opened++;
	*ret_address = entry->address;
	return CUDA_SUCCESS;
}

CUresult ipc_open_part(CUcontext context, const struct ipc_part *part, CUdeviceptr *ret_address)
{
	struct place *place, *unused = NULL;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = find_place(&part->token, &place);
	if (r == CUDA_SUCCESS) {
		r = open_in(context, place, part, ret_address);
		unused = take_unused(place);
	}
	pthread_mutex_unlock(&lock);
	unmap_place(unused);
	return r;
}

CUresult ipc_open(CUcontext context, const CUipcMemHandle *handle, CUdeviceptr *ret_address)
{
	struct content content;

	memcpy(&content, handle, sizeof(content));
	if (memcmp(content.magic, MAGIC, sizeof(content.magic)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (session_is_own(content.session))
		return CUDA_ERROR_INVALID_CONTEXT;
	return ipc_open_part(context, &content.part, ret_address);
}

static void drop_entry(struct entry *entry)
{
	struct entry **link = &entries;

	while (*link != entry)
		link = &(*link)->next;
	pthread_mutex_lock(&entry_lock);
	*link = entry->next;
	pthread_mutex_unlock(&entry_lock);
	free(entry);
}

/* Closes an entry so many times. Under the lock. Return: as take_unused() */
static struct place *close_entry(struct entry *entry, uint32_t times)
{
	struct place *place = entry->place;

	entry->opened -= times;
	if (entry->opened == 0)
		drop_entry(entry);
	place->opened -= times;
	return take_unused(place);
}

CUresult ipc_close(CUcontext context, CUdeviceptr address)
{
	struct place *unused = NULL;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = find_entry(context, address);
	/* Opened in another context. */
	for (struct entry *other = entries; !entry && other; other = other->next)
		if (other->address == address)
			entry = other;
	if (entry) {
		unused = close_entry(entry, 1);
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return unused ? unmap_place(unused) : r;
}

void ipc_release_context(CUcontext context)
{
	struct place *place, *unused = NULL;
	struct entry *entry, *next;

	pthread_mutex_lock(&lock);
	for (entry = entries; entry; entry = next) {
		next = entry->next;
		place = entry->context == context ? close_entry(entry, entry->opened) : NULL;
		if (place) {
			place->next = unused;
			unused = place;
		}
	}
	pthread_mutex_unlock(&lock);
	while ((place = unused)) {
		unused = place->next;
		unmap_place(place);
	}
}

void ipc_narrow(uint64_t address, struct range *range)
{
	const struct entry *entry;

	if (range->kind != RANGE_MAPPED && range->kind != RANGE_MAPPED_HOST)
		return;
	pthread_mutex_lock(&entry_lock);
	for (entry = entries; entry; entry = entry->next)
		if (address - entry->address < entry->bytes)
			break;
	if (entry) {
		range->address = entry->address;
		range->bytes = entry->bytes;
	}
	pthread_mutex_unlock(&entry_lock);
}
