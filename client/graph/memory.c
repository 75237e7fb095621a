// See memory.h. A list has all memory; a tree has all memory with an address: a launch looks up the
// address of each of its free nodes.

#include "client/graph/memory.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "client/state/memory.h"
#include "client/state/mempool.h"
#include "client/state/session.h"

struct graph_memory {
	struct graph_memory *next;
	CUcontext context;   /* the owner */
	CUdeviceptr address; /* 0: the context has ended, and its memory is freed */
	uint64_t bytes;
	unsigned int references;
	bool allocated;
	struct session *session;
	bool counted;		      /* in the figures of the session */
	struct client_stream *stream; /* of the latest free; NULL: that is done */
	uint64_t seq;
};

/* The driver's figures are multiples of this. */
#define GRANULE (UINT64_C(32) << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *all;
static void *by_address;

static int compare(const void *one, const void *other)
{
	const struct graph_memory *left = one, *right = other;

	return (left->address > right->address) - (left->address < right->address);
}

static uint64_t granules(uint64_t bytes)
{
	return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static void raise_to(uint64_t *high, uint64_t value)
{
	if (*high < value)
		*high = value;
}

static void count(struct graph_memory *memory)
{
	struct graph_figures *figures = &memory->session->graphs;

	figures->there += memory->counted ? 0 : memory->bytes;
	memory->counted = true;
	raise_to(&figures->held, granules(figures->there));
	raise_to(&figures->used_high, figures->held);
	raise_to(&figures->reserved_high, figures->held);
}

static void uncount(struct graph_memory *memory)
{
	memory->session->graphs.there -= memory->counted ? memory->bytes : 0;
	memory->counted = false;
}

CUresult graph_memory_new(CUcontext context, uint64_t bytes, struct graph_memory **ret_memory)
{
	struct graph_memory *memory = calloc(1, sizeof(*memory));
	CUresult r = memory ? memory_alloc(context, bytes, &memory->address) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(memory);
		return r;
	}
	memory->session = session_self();
	memory->context = context;
	memory->bytes = bytes;
	memory->references = 1;
	pthread_mutex_lock(&lock);
	memory->next = all;
	all = memory;
	if (!tsearch(memory, &by_address, compare)) {
		memory->references = 0;
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		graph_memory_reap();
	else
		*ret_memory = memory;
	return r;
}

void graph_memory_ref(struct graph_memory *memory)
{
	pthread_mutex_lock(&lock);
	memory->references++;
	pthread_mutex_unlock(&lock);
}

void graph_memory_unref(struct graph_memory *memory)
{
	pthread_mutex_lock(&lock);
	memory->references--;
	pthread_mutex_unlock(&lock);
}

/* Memory that the program still uses stays after its graph until the program frees it. Return: all
 * unused memory, as a list */
static struct graph_memory *take_unused(void)
{
	struct graph_memory **at = &all, *memory, *unused = NULL;

	pthread_mutex_lock(&lock);
	while ((memory = *at)) {
		if (memory->references || memory->allocated) {
			at = &memory->next;
			continue;
		}
		*at = memory->next;
		uncount(memory);
		tdelete(memory, &by_address, compare);
		memory->next = unused;
		unused = memory;
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

void graph_memory_reap(void)
{
	struct graph_memory *unused = take_unused(), *memory;

	while ((memory = unused)) {
		unused = memory->next;
		SESSION_SCOPE(memory->session);
		if (memory->address) {
			mempool_free_behind(memory->address, memory->stream, memory->seq);
			mempool_settle();
		}
		free(memory);
	}
}

/* Under the lock. */
static void forget_rest(struct session *session)
{
	session->graphs.held = granules(session->graphs.there);
}

void graph_memory_release_context(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (struct graph_memory *memory = all; memory; memory = memory->next) {
		if (memory->context != context || !memory->address)
			continue;
		uncount(memory);
		tdelete(memory, &by_address, compare);
		memory->allocated = false;
		memory->address = 0;
	}
	forget_rest(session_self());
	pthread_mutex_unlock(&lock);
}

void graph_memory_trim(void)
{
	graph_memory_reap();
	pthread_mutex_lock(&lock);
	for (struct graph_memory *memory = all; memory; memory = memory->next)
		if (!memory->allocated && memory->session == session_self())
			uncount(memory);
	forget_rest(session_self());
	pthread_mutex_unlock(&lock);
}

CUdeviceptr graph_memory_address(const struct graph_memory *memory)
{
	return memory->address;
}

uint64_t graph_memory_bytes(const struct graph_memory *memory)
{
	return memory->bytes;
}

static struct graph_memory *find(CUdeviceptr address)
{
	const struct graph_memory key = {.address = address};
	struct graph_memory **found = tfind(&key, &by_address, compare);

	return found ? *found : NULL;
}

bool graph_memory_is(CUdeviceptr address)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = find(address) != NULL;
	pthread_mutex_unlock(&lock);
	return is;
}

/* Sets the memory at an address free; NULL if it was free already. Under the lock. */
static struct graph_memory *set_free(CUdeviceptr address)
{
	struct graph_memory *memory = find(address);

	if (!memory || !memory->allocated)
		return NULL;
	memory->allocated = false;
	return memory;
}

CUresult graph_memory_release(CUdeviceptr address, struct client_stream *stream, uint64_t seq)
{
	struct graph_memory *memory;

	pthread_mutex_lock(&lock);
	memory = set_free(address);
	if (memory) {
		memory->stream = stream;
		memory->seq = seq;
	}
	pthread_mutex_unlock(&lock);
	/* The graph of the memory may be destroyed already. */
	graph_memory_reap();
	return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool graph_memory_free(CUdeviceptr address)
{
	struct graph_memory *memory;

	pthread_mutex_lock(&lock);
	memory = set_free(address);
	if (memory)
		memory->references++;
	pthread_mutex_unlock(&lock);
	return memory != NULL;
}

void graph_memory_undo_free(CUdeviceptr address)
{
	struct graph_memory *memory;

	pthread_mutex_lock(&lock);
	memory = find(address);
	if (memory) {
		memory->allocated = true;
		memory->references--;
	}
	pthread_mutex_unlock(&lock);
}

void graph_memory_freed(CUdeviceptr address, struct client_stream *stream, uint64_t seq)
{
	struct graph_memory *memory;

	pthread_mutex_lock(&lock);
	memory = find(address);
	if (memory) {
		memory->stream = stream;
		memory->seq = seq;
		memory->references--;
	}
	pthread_mutex_unlock(&lock);
}

CUresult graph_memory_check(const struct graph_memory *memory, bool again)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!memory->address)
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else if (memory->allocated && !again)
		r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return r;
}

struct client_stream *graph_memory_latest_free(const struct graph_memory *memory, uint64_t *ret_seq)
{
	struct client_stream *stream;

	pthread_mutex_lock(&lock);
	stream = memory->stream;
	*ret_seq = memory->seq;
	pthread_mutex_unlock(&lock);
	return stream;
}

bool graph_memory_allocate(struct graph_memory *memory)
{
	bool changes;

	pthread_mutex_lock(&lock);
	changes = memory->address && !memory->allocated;
	if (changes) {
		memory->allocated = true;
		count(memory);
	}
	pthread_mutex_unlock(&lock);
	return changes;
}

void graph_memory_undo_allocate(struct graph_memory *memory)
{
	pthread_mutex_lock(&lock);
	memory->allocated = false;
	pthread_mutex_unlock(&lock);
}

CUresult graph_memory_get(CUgraphMem_attribute attribute, uint64_t *ret_value)
{
	const struct graph_figures *figures = &session_self()->graphs;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		*ret_value = figures->held;
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		*ret_value = figures->used_high;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		*ret_value = figures->reserved_high;
		break;
	default:
		r = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* Setting a high mark to 0 resets it to the current value. */
CUresult graph_memory_set(CUgraphMem_attribute attribute, uint64_t value)
{
	struct graph_figures *figures = &session_self()->graphs;
	bool is_used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;

	if ((!is_used && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) || value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*(is_used ? &figures->used_high : &figures->reserved_high) = figures->held;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
