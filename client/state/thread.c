// See thread.h. Only its own thread accesses this data. The destructor of a key runs at the end of
// a thread; a thread registers it when it first owns a resource.

#include "client/state/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/context.h"
#include "client/state/stream_slot.h"

static __thread struct thread self;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

struct thread *thread_self(void)
{
	return &self;
}

static void leave(void *value)
{
	struct thread *thread = value;
	struct client_stream *stream = thread->streams, *next;

	thread->streams = NULL;
	/* A function of the program may have ended the thread. */
	thread->is_callbacks = false;
	for (; stream; stream = next) {
		next = stream->next_own;
		thread->retire(stream);
	}
	free(thread->below);
	thread->below = NULL;
	thread->depth = thread->room = 0;
	thread->registered = false;
}

static void make_key(void)
{
	key_made = pthread_key_create(&key, leave) == 0;
}

CUresult thread_register(struct thread *thread)
{
	if (thread->registered)
		return CUDA_SUCCESS;
	pthread_once(&once, make_key);
	if (!key_made || pthread_setspecific(key, thread) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	thread->registered = true;
	return CUDA_SUCCESS;
}

unsigned int thread_scheduling(void)
{
	return context_flags(context_current()) & CU_CTX_SCHED_MASK;
}

static CUresult make_room(void)
{
	unsigned int room = self.room ? 2 * self.room : 8;
	CUcontext *below;

	if (self.depth < self.room)
		return CUDA_SUCCESS;
	if (thread_register(&self) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	below = realloc(self.below, room * sizeof(*below));
	if (!below)
		return CUDA_ERROR_OUT_OF_MEMORY;
	self.below = below;
	self.room = room;
	return CUDA_SUCCESS;
}

CUresult thread_push(CUcontext context)
{
	CUresult r = self.current ? make_room() : CUDA_SUCCESS;

	if (r != CUDA_SUCCESS)
		return r;
	if (self.current)
		self.below[self.depth++] = self.current;
	self.current = context;
	return CUDA_SUCCESS;
}

CUresult thread_pop(CUcontext *ret_context)
{
	if (!self.current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_context = self.current;
	self.current = self.depth ? self.below[--self.depth] : NULL;
	return CUDA_SUCCESS;
}

void thread_set(CUcontext context)
{
	CUcontext old;

	if (context)
		self.current = context;
	else
		thread_pop(&old);
}

CUcontext context_shown(void)
{
	return self.current;
}

CUcontext context_current(void)
{
	return context_owner(self.current);
}
