// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See memory.h. A list: programs with graphs that allocate have few such nodes.

#include "client/graph/memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/state/memory.h"

struct graph_memory {
	struct graph_memory *next;
	CUcontext context;   /* whose memory it is */
	CUdeviceptr address; /* 0: the context has ended, and the memory with it */
	uint64_t bytes;
	unsigned int references;
	bool allocated;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *all;
static uint64_t used, used_high, reserved, reserved_high;

static void raise_to(uint64_t *high, uint64_t value)
{
	if (*high < value)
		*high = value;
}

CUresult graph_memory_new(CUcontext context, uint64_t bytes, struct graph_memory **ret_memory)
{
	struct graph_memory *memory = calloc(1, sizeof(*memory));
	CUresult r = memory ? memory_alloc(context, bytes, &memory->address) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(memory);
		return r;
	}
	memory->context = context;
	memory->bytes = bytes;
	memory->references = 1;
	pthread_mutex_lock(&lock);
	memory->next = all;
	all = memory;
	reserved += bytes;
	raise_to(&reserved_high, reserved);
	pthread_mutex_unlock(&lock);
	*ret_memory = memory;
	return CUDA_SUCCESS;
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

/* What the program still uses, although its graph is gone, stays until it frees it. */
static struct graph_memory *take_unused(void)
{
	struct graph_memory **at = &all, *found;

	pthread_mutex_lock(&lock);
	while (*at && ((*at)->references || (*at)->allocated))
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		reserved -= found->address ? found->bytes : 0;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void graph_memory_reap(void)
{
	struct graph_memory *memory;

	while ((memory = take_unused())) {
		memory_free(memory->address);
		free(memory);
	}
}

void graph_memory_release_context(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (struct graph_memory *memory = all; memory; memory = memory->next) {
		if (memory->context != context || !memory->address)
			continue;
		reserved -= memory->bytes;
		used -= memory->allocated ? memory->bytes : 0;
		memory->allocated = false;
		memory->address = 0;
	}
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
	struct graph_memory *memory = all;

	while (memory && memory->address != address)
		memory = memory->next;
	return address ? memory : NULL;
}

bool graph_memory_is(CUdeviceptr address)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = find(address) != NULL;
	pthread_mutex_unlock(&lock);
	return is;
}

static bool set_free(CUdeviceptr address)
{
	struct graph_memory *memory;
	bool was;

	pthread_mutex_lock(&lock);
	memory = find(address);
	was = memory && memory->allocated;
	if (was) {
		memory->allocated = false;
		used -= memory->bytes;
	}
	pthread_mutex_unlock(&lock);
	return was;
}

CUresult graph_memory_release(CUdeviceptr address)
{
	return set_free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void graph_memory_free(CUdeviceptr address)
{
	set_free(address);
}

CUresult graph_memory_allocate(struct graph_memory *memory, bool again)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!memory->address) {
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	} else if (!memory->allocated) {
		memory->allocated = true;
		used += memory->bytes;
		raise_to(&used_high, used);
	} else if (!again) {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static uint64_t *value_of(CUgraphMem_attribute attribute)
{
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		return &used;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		return &used_high;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		return &reserved;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		return &reserved_high;
	default:
		return NULL;
	}
}

CUresult graph_memory_get(CUgraphMem_attribute attribute, uint64_t *ret_value)
{
	const uint64_t *value = value_of(attribute);

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*ret_value = *value;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* High marks can be set back to where they are now, by setting them to 0. */
CUresult graph_memory_set(CUgraphMem_attribute attribute, uint64_t value)
{
	bool is_used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;

	if ((!is_used && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) || value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*value_of(attribute) = is_used ? used : reserved;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
