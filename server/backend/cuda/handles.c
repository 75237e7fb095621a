// See handles.h. An unordered list: it is searched when a kernel has faulted or a module goes, and neither
// happens often. The lock is a leaf, and the driver is never called under it.

#include "server/backend/cuda/handles.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/log.h"

struct entry {
	uint64_t handle;
	struct backend_module *module;
};

static struct {
	pthread_mutex_t lock;
	struct entry *entries;
	uint32_t count, room;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. */
static int make_room(void)
{
	uint32_t room = list.room * 2 + 64;
	struct entry *entries;

	if (list.count < list.room)
		return 0;
	entries = realloc(list.entries, room * sizeof(*entries));
	if (!entries)
		return -1;
	list.entries = entries;
	list.room = room;
	return 0;
}

void handles_note(uint64_t handle, struct backend_module *module)
{
	pthread_mutex_lock(&list.lock);
	if (make_room())
		log_warning("no memory to remember a module: a fault in it cannot be contained");
	else
		list.entries[list.count++] = (struct entry){.handle = handle, .module = module};
	pthread_mutex_unlock(&list.lock);
}

void handles_forget(const struct backend_module *module)
{
	pthread_mutex_lock(&list.lock);
	for (uint32_t i = 0; i < list.count;)
		if (list.entries[i].module == module)
			list.entries[i] = list.entries[--list.count];
		else
			i++;
	pthread_mutex_unlock(&list.lock);
}

struct backend_module *handles_find(uint64_t handle)
{
	struct backend_module *module = NULL;

	pthread_mutex_lock(&list.lock);
	for (uint32_t i = 0; i < list.count && handle && !module; i++)
		if (list.entries[i].handle == handle)
			module = list.entries[i].module;
	pthread_mutex_unlock(&list.lock);
	return module;
}
