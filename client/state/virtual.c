// See virtual.h. Two tables under a lock, which no thread holds while it asks the service: handles
// by index, and mappings by address. A mapping is BUSY while a thread makes or removes it: its
// addresses are in use, and no other thread may use the mapping. The map of ranges (ranges.h) has
// the memory for copies and pointer queries, only while READY.
//
// A handle's number is its place in the table and a count of the place's uses: an old number finds
// nothing.

#include "client/state/virtual.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/link/control.h"
#include "client/link/map.h"
#include "client/state/device.h"
#include "client/state/log.h"
#include "client/state/memory.h"
#include "client/state/peer.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/space.h"
#include "client/submit/wait.h"

struct physical {
	struct session *session;
	uint32_t uses; /* of this place */
	bool used;
	uint32_t references, mappings;
	uint64_t bytes;
	CUmemAllocationProp properties;
	uint32_t next_free; /* place + 1 */
};

struct mapping {
	uint32_t place; /* of the handle */
	bool busy;
	uint8_t access[VIRTUAL_PROCESSOR + 1]; /* CUmemAccess_flags of each device, of the processor */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct physical *places; /* guarded by lock, as the variables below */
static uint32_t place_count, place_room, first_free;
static struct range_map mappings; /* block: struct mapping */

/* ---- handles, under the lock ---- */

static CUmemGenericAllocationHandle handle_of(uint32_t place)
{
	return (uint64_t)places[place].uses << 32 | (place + 1);
}

static struct physical *find(CUmemGenericAllocationHandle handle)
{
	uint32_t place = (uint32_t)handle - 1;

	/* Memory that is only mapped has no handle until a retain. */
	if (!(uint32_t)handle || place >= place_count || !places[place].used || !places[place].references ||
		places[place].uses != handle >> 32)
		return NULL;
	return &places[place];
}

static bool grow_places(void)
{
	uint32_t room = place_room ? 2 * place_room : 64;
	struct physical *larger = realloc(places, room * sizeof(*larger));

	if (!larger)
		return false;
	places = larger;
	place_room = room;
	return true;
}

/* Takes a place. Return: its handle, 0 without memory. */
static CUmemGenericAllocationHandle take_place(const struct physical *content)
{
	uint32_t place = first_free ? first_free - 1 : place_count, uses;

	if (!first_free && place_count == place_room && !grow_places())
		return 0;
	if (first_free)
		first_free = places[place].next_free;
	else
		places[place_count++] = (struct physical){0};
	uses = places[place].uses + 1;
	places[place] = *content;
	places[place].session = session_self();
	places[place].uses = uses;
	places[place].used = true;
	return handle_of(place);
}

static void give_place(struct physical *physical)
{
	physical->used = false;
	physical->next_free = first_free;
	first_free = (uint32_t)(physical - places) + 1;
}

/* Memory that is no longer in use: the service is to release its handle; 0: it is in use. */
struct gone {
	struct session *session;
	CUmemGenericAllocationHandle handle;
};

/* Frees the place if the memory is no longer in use. */
static struct gone retire(struct physical *physical)
{
	CUmemGenericAllocationHandle handle = handle_of((uint32_t)(physical - places));

	if (physical->references || physical->mappings)
		return (struct gone){physical->session, 0};
	give_place(physical);
	return (struct gone){physical->session, handle};
}

/* ---- requests ---- */

/* @ret_values: of the reply, if `count` is not 0 */
static CUresult ask(
	enum wire_type type, const struct wire_memory *memory, uint64_t *ret_values, uint32_t count)
{
	struct wire_message request = {.type = type, .memory = *memory};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && answer->message.reply.values.count < count)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS && count)
		memcpy(ret_values, answer->message.reply.values.at, count * sizeof(*ret_values));
	control_answer_free(answer);
	return r;
}

static CUresult release_at_service(struct gone gone)
{
	SESSION_SCOPE(gone.session);

	return gone.handle ? ask(WIRE_RELEASE_MEMORY, &(struct wire_memory){.handle = gone.handle}, NULL, 0)
			   : CUDA_SUCCESS;
}

/* ---- memory ---- */

/* Makes a handle whose memory the service gives for a request. @count: of the values that say what
 * it is; 0: that is known */
static CUresult make(enum wire_type type, struct wire_memory *request, const struct physical *content,
	uint32_t count, CUmemGenericAllocationHandle *ret_handle)
{
	CUmemGenericAllocationHandle handle;
	uint64_t values[2] = {0, 0};
	struct physical *physical;
	CUresult r;

	pthread_mutex_lock(&lock);
	handle = take_place(content);
	pthread_mutex_unlock(&lock);
	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	request->handle = handle;
	r = ask(type, request, values, count);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && memory_give_back())
		r = ask(type, request, values, count);
	pthread_mutex_lock(&lock);
	physical = find(handle);
	if (r != CUDA_SUCCESS)
		give_place(physical);
	else if (count)
		physical->bytes = values[0];
	if (r == CUDA_SUCCESS && values[1])
		physical->properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*ret_handle = handle;
	return r;
}

CUresult virtual_create(
	uint64_t bytes, const CUmemAllocationProp *properties, CUmemGenericAllocationHandle *ret_handle)
{
	struct physical content = {.references = 1, .bytes = bytes, .properties = *properties};
	struct wire_memory request = {.bytes = bytes, .host = virtual_is_host(&properties->location)};

	/* The service makes no such piece: no device has so much. */
	if (bytes > WINDOW_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return make(WIRE_CREATE_MEMORY, &request, &content, 0, ret_handle);
}

/* The device that has the memory; the thread's own if the program does not see that one. */
static int ordinal_of(const struct virtual_token *token)
{
	int ordinal = device_of_number(WIRE_TOKEN_DEVICE(token->words));

	return ordinal >= 0 ? ordinal : device_own();
}

CUresult virtual_import_token(
	const struct virtual_token *token, CUmemGenericAllocationHandle *ret_handle, uint64_t *ret_bytes)
{
	struct physical content = {.references = 1,
		.properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
			.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal_of(token)}}};
	struct wire_memory request = {.token = {token->words[0], token->words[1]}};

	CUresult r = make(WIRE_IMPORT_MEMORY, &request, &content, 2, ret_handle);

	if (r == CUDA_SUCCESS) {
		pthread_mutex_lock(&lock);
		*ret_bytes = find(*ret_handle)->bytes;
		pthread_mutex_unlock(&lock);
	}
	return r;
}

CUresult virtual_release(CUmemGenericAllocationHandle handle)
{
	struct physical *physical;
	struct gone gone;
	bool is_held;

	pthread_mutex_lock(&lock);
	physical = find(handle);
	is_held = physical && physical->references;
	if (is_held) {
		physical->references--;
		gone = retire(physical);
	}
	pthread_mutex_unlock(&lock);
	return is_held ? release_at_service(gone) : CUDA_ERROR_INVALID_VALUE;
}

CUresult virtual_retain(uint64_t address, CUmemGenericAllocationHandle *ret_handle)
{
	struct range *range;
	struct mapping *mapping;

	pthread_mutex_lock(&lock);
	range = range_map_find(&mappings, address);
	mapping = range ? range->block : NULL;
	if (mapping && mapping->busy)
		mapping = NULL;
	if (mapping) {
		places[mapping->place].references++;
		*ret_handle = handle_of(mapping->place);
	}
	pthread_mutex_unlock(&lock);
	return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_properties)
{
	struct physical *physical;

	pthread_mutex_lock(&lock);
	physical = find(handle);
	if (physical)
		*ret_properties = physical->properties;
	pthread_mutex_unlock(&lock);
	return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings ---- */

/* Executors have reserved addresses for device memory with the driver, and register host memory at
 * others. */
static CUresult check_kind(const struct physical *physical, uint64_t address)
{
	bool is_host = virtual_is_host(&physical->properties.location);

	if (space_is_host(address) == is_host)
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR,
		is_host ? "host memory is not mapped at addresses for device memory: reserve them behind "
			  "cuMemCreate or cuMemGetAllocationGranularity for host memory, in the same thread"
			: "device memory is not mapped at addresses for host memory: the thread that "
			  "reserved "
			  "them had just made or asked about some");
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Takes the addresses for a mapping that is about to be made. */
static CUresult begin_map(
	uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle, struct mapping *mapping)
{
	struct range range = {.address = address, .bytes = bytes, .room = bytes, .block = mapping};
	struct physical *physical = find(handle);
	CUresult r;
	int e;

	if (!physical)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes != physical->bytes)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = check_kind(physical, address);
	if (r != CUDA_SUCCESS)
		return r;
	*mapping = (struct mapping){.place = (uint32_t)(physical - places), .busy = true};
	e = range_map_add(&mappings, &range);
	if (e != 0)
		return e == RANGES_E_EXISTS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	physical->mappings++;
	return CUDA_SUCCESS;
}

/* Removes a mapping. */
static struct gone end_mapping(uint64_t address)
{
	struct range range;
	struct mapping *mapping;
	struct physical *physical;
	struct gone gone;

	pthread_mutex_lock(&lock);
	range_map_remove(&mappings, address, &range);
	mapping = range.block;
	physical = &places[mapping->place];
	physical->mappings--;
	gone = retire(physical);
	pthread_mutex_unlock(&lock);
	free(mapping);
	return gone;
}

static CUresult publish(uint64_t address, uint64_t bytes, struct mapping *mapping)
{
	struct range range = {.address = address,
		.bytes = bytes,
		.room = bytes,
		.kind = space_is_host(address) ? RANGE_MAPPED_HOST : RANGE_MAPPED};
	int e;

	pthread_mutex_lock(&lock);
	range.flags = places[mapping->place].properties.requestedHandleTypes;
	e = ranges_insert(&range);
	mapping->busy = e != 0;
	pthread_mutex_unlock(&lock);
	return e == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unmap_at_service(uint64_t address, uint64_t bytes)
{
	struct wire_message request = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = address, .bytes = bytes}};
	struct control_answer *answer;
	CUresult r;

	if (space_is_host(address))
		return map_host_end(address, bytes);
	answer = control_answer_new();
	r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;
	control_answer_free(answer);
	return r;
}

static CUresult map_at_service(const struct wire_memory *memory)
{
	struct wire_message request = {.type = WIRE_MAP_HANDLE, .memory = *memory};

	return space_is_host(memory->address) ? map_host_own(&request, memory->address, memory->bytes)
					      : ask(WIRE_MAP_HANDLE, memory, NULL, 0);
}

/* In the session of the addresses, which has the memory. */
static CUresult map_own(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	struct wire_memory request = {.handle = handle, .address = address, .bytes = bytes};
	struct peer_window window;
	struct mapping *mapping;
	CUresult r;

	mapping = malloc(sizeof(*mapping));
	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	r = begin_map(address, bytes, handle, mapping);
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS) {
		free(mapping);
		return r;
	}
	r = map_at_service(&request);
	/* The memory is there, but not that of the device's page tables. */
	if (r == CUDA_ERROR_OUT_OF_MEMORY && memory_give_back())
		r = map_at_service(&request);
	if (r != CUDA_SUCCESS) {
		release_at_service(end_mapping(address));
		return r;
	}
	r = space_window(session_self(), address, &window) ? peer_add(&window, address, bytes, PEER_NAMED)
							   : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = publish(address, bytes, mapping);
	if (r != CUDA_SUCCESS && peer_remove(address) == CUDA_SUCCESS &&
		unmap_at_service(address, bytes) == CUDA_SUCCESS)
		release_at_service(end_mapping(address));
	return r;
}

/* The thread's own for an invalid handle. */
static struct session *handle_session(CUmemGenericAllocationHandle handle)
{
	const struct physical *physical;
	struct session *session;

	pthread_mutex_lock(&lock);
	physical = find(handle);
	session = physical ? physical->session : session_self();
	pthread_mutex_unlock(&lock);
	return session;
}

/* A handle in the thread's session for memory of another one. */
static CUresult import_from(
	struct session *from, CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *ret_handle)
{
	struct virtual_token token;
	uint64_t values[2], bytes;
	CUresult r;

	{
		SESSION_SCOPE(from);
		r = ask(WIRE_EXPORT_MEMORY, &(struct wire_memory){.handle = handle}, values, 2);
	}
	memcpy(token.words, values, sizeof(token.words));
	return r == CUDA_SUCCESS ? virtual_import_token(&token, ret_handle, &bytes) : r;
}

CUresult virtual_map(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	struct session *session = space_owner(address, bytes), *from = handle_session(handle);
	CUmemGenericAllocationHandle own = handle;
	CUresult r = CUDA_SUCCESS;

	if (address % VIRTUAL_GRANULE || !session)
		return CUDA_ERROR_INVALID_VALUE;
	SESSION_SCOPE(session);
	if (from != session)
		r = import_from(from, handle, &own);
	if (r == CUDA_SUCCESS)
		r = map_own(address, bytes, own);
	/* The mapping keeps the memory. */
	if (own != handle)
		virtual_release(own);
	return r;
}

/* Calls `visit` for the mappings of a range, if it consists of whole READY mappings. Under the
 * lock. */
static CUresult each_mapping(uint64_t address, uint64_t bytes,
	void (*visit)(struct mapping *mapping, unsigned what), unsigned what)
{
	uint64_t end = address + bytes;

	if (!bytes || end < address)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = address; at < end;) {
		const struct range *range = range_map_find(&mappings, at);

		if (!range || range->address != at || range->bytes > end - at ||
			((struct mapping *)range->block)->busy)
			return CUDA_ERROR_INVALID_VALUE;
		at += range->bytes;
	}
	for (uint64_t at = address; visit && at < end;) {
		const struct range *range = range_map_find(&mappings, at);

		visit(range->block, what);
		at += range->bytes;
	}
	return CUDA_SUCCESS;
}

static void set_busy(struct mapping *mapping, unsigned busy)
{
	mapping->busy = busy;
}

/* @what: the place in `access`, and the flags */
static void set_access(struct mapping *mapping, unsigned what)
{
	mapping->access[what >> 8] = (uint8_t)what;
}

/* Size of the mapping that begins at an address. */
static uint64_t bytes_at(uint64_t address)
{
	uint64_t bytes;

	pthread_mutex_lock(&lock);
	bytes = range_map_find(&mappings, address)->bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

/* The session of a mapping that nobody removes meanwhile. */
static struct session *session_of(uint64_t address)
{
	struct session *session;

	pthread_mutex_lock(&lock);
	session = places[((struct mapping *)range_map_find(&mappings, address)->block)->place].session;
	pthread_mutex_unlock(&lock);
	return session;
}

/* True if nothing is mapped in a reserved range. */
static bool is_bare(uint64_t address, uint64_t bytes)
{
	return bytes && space_owner(address, bytes) && !range_map_touches(&mappings, address, bytes);
}

CUresult virtual_unmap(uint64_t address, uint64_t bytes)
{
	CUresult r, worst;
	bool bare;

	pthread_mutex_lock(&lock);
	bare = is_bare(address, bytes);
	r = bare ? CUDA_SUCCESS : each_mapping(address, bytes, set_busy, true);
	pthread_mutex_unlock(&lock);
	/* As in the driver, unmapping an unmapped range succeeds. */
	if (bare || r != CUDA_SUCCESS)
		return r;
	SESSION_SCOPE(session_of(address));
	for (uint64_t at = address; at < address + bytes; at += bytes_at(at))
		ranges_remove(at, NULL);
	worst = peer_wait(address);
	for (uint64_t at = address, size; at < address + bytes; at += size) {
		size = bytes_at(at);
		r = peer_remove(at);
		if (r == CUDA_SUCCESS)
			r = unmap_at_service(at, size);
		/* Memory that is still mapped keeps its addresses: these must not be reused. */
		if (r == CUDA_SUCCESS)
			r = release_at_service(end_mapping(at));
		if (worst == CUDA_SUCCESS)
			worst = r;
	}
	return worst;
}

bool virtual_is_mapped(uint64_t address, uint64_t bytes)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = range_map_touches(&mappings, address, bytes);
	pthread_mutex_unlock(&lock);
	return is;
}

/* Size of the mapping that begins at an address; 0: none does, now. */
static uint64_t look_at(uint64_t address)
{
	const struct range *range;
	uint64_t bytes;

	pthread_mutex_lock(&lock);
	range = range_map_find(&mappings, address);
	bytes = range && range->address == address ? range->bytes : 0;
	pthread_mutex_unlock(&lock);
	return bytes;
}

/* The device of the addresses has the memory anyway. */
static CUresult give_access(uint64_t address, uint64_t bytes, struct session *to, CUmemAccess_flags flags)
{
	const struct session *session = space_owner(address, bytes);
	CUresult r = CUDA_SUCCESS;

	if (!session || session == to)
		return CUDA_SUCCESS;
	if (!space_is_host(address) && !peer_can(session_ordinal(to), session_ordinal(session)))
		return CUDA_ERROR_INVALID_DEVICE;
	for (uint64_t at = address, size; r == CUDA_SUCCESS && at < address + bytes; at += size) {
		size = look_at(at);
		if (!size)
			return CUDA_ERROR_INVALID_VALUE;
		r = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? peer_unshare(at, to) : peer_share(at, to);
	}
	return r;
}

CUresult virtual_set_access(uint64_t address, uint64_t bytes, unsigned device, CUmemAccess_flags flags)
{
	CUresult r;

	if (device == VIRTUAL_PROCESSOR && !space_is_host(address))
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	r = each_mapping(address, bytes, NULL, 0);
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS && device != VIRTUAL_PROCESSOR)
		r = give_access(address, bytes, &sessions[device], flags);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	r = each_mapping(address, bytes, set_access, device << 8 | flags);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult virtual_get_access(uint64_t address, unsigned device, CUmemAccess_flags *ret_flags)
{
	const struct range *range;

	if (device == VIRTUAL_PROCESSOR && !space_is_host(address))
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	range = range_map_find(&mappings, address);
	if (range)
		*ret_flags = ((struct mapping *)range->block)->access[device];
	pthread_mutex_unlock(&lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- other programs ---- */

CUresult virtual_token_of(
	uint64_t address, struct virtual_token *ret_token, uint64_t *ret_begin, uint64_t *ret_bytes)
{
	uint64_t values[4];
	CUresult r = ask(WIRE_EXPORT_MEMORY, &(struct wire_memory){.address = address}, values, 4);

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(ret_token->words, values, sizeof(ret_token->words));
	*ret_begin = values[3];
	*ret_bytes = values[2];
	return CUDA_SUCCESS;
}

/* The service's file, which keeps the memory alive while any process has it open. */
static CUresult ask_file(CUmemGenericAllocationHandle handle, int *ret_fd)
{
	struct wire_message request = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = handle}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS) {
		*ret_fd = packet_take_fd(&answer->packet, 0);
		r = *ret_fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	control_answer_free(answer);
	return r;
}

CUresult virtual_export(CUmemGenericAllocationHandle handle, int *ret_fd)
{
	CUmemAllocationProp properties;
	struct session *session = handle_session(handle);
	CUresult r = virtual_properties(handle, &properties);

	SESSION_SCOPE(session);
	if (r == CUDA_SUCCESS &&
		!(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? ask_file(handle, ret_fd) : r;
}

CUresult virtual_import(int fd, CUmemGenericAllocationHandle *ret_handle)
{
	struct virtual_token token;
	struct wire_export file;
	uint64_t bytes;
	int saved = errno;
	/* Only memfds have seals, and a read of a memfd never waits. */
	bool is_ours = fcntl(fd, F_GET_SEALS) == WIRE_EXPORT_SEALS &&
		       pread(fd, &file, sizeof(file), 0) == sizeof(file) &&
		       memcmp(file.magic, WIRE_EXPORT_MAGIC, sizeof(file.magic)) == 0;

	errno = saved;
	if (!is_ours)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(token.words, file.token, sizeof(token.words));
	return virtual_import_token(&token, ret_handle, &bytes);
}
