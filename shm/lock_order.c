// See lock_order.h. Each thread has the list of what it holds. No lock of its own.

#include "shm/lock_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most locks that a thread holds: a fork takes all locks of the library that a child needs. */
#define HELD_MAX 64u

struct lock_class {
	unsigned rank;
	const char *name, *place, *expression;
};

static const struct lock_class classes[] = {
#define LOCK(rank, name, place, expression) {rank, #name, place, expression},
#include "shm/locks.def"
#undef LOCK
};

static __thread struct {
	const void *lock;
	const struct lock_class *class;
} held[HELD_MAX];
static __thread unsigned held_count;

static void fail(const char *what, const char *one, const char *other)
{
	fprintf(stderr, "lock order: %s: %s, %s (shm/locks.def)\n", what, one, other);
	abort();
}

static const struct lock_class *find(const char *file, const char *expression)
{
	for (unsigned i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (!strcmp(classes[i].expression, expression) && strstr(file, classes[i].place))
			return &classes[i];
	fail("a lock without a row", file, expression);
	return NULL;
}

static const struct lock_class *class_of(
	const struct lock_class **class, const char *file, const char *expression)
{
	const struct lock_class *known = __atomic_load_n(class, __ATOMIC_RELAXED);

	if (known)
		return known;
	known = find(file, expression);
	__atomic_store_n(class, known, __ATOMIC_RELAXED);
	return known;
}

void lock_order_check(const struct lock_class **class, const char *file, const char *expression)
{
	const struct lock_class *wanted = class_of(class, file, expression);

	for (unsigned i = 0; i < held_count; i++)
		if (held[i].class->rank >= wanted->rank)
			fail("the first is held, and the second is taken", held[i].class->name, wanted->name);
}

void lock_order_note(
	const void *lock, const struct lock_class **class, const char *file, const char *expression)
{
	if (held_count == HELD_MAX)
		fail("a thread holds too many", file, expression);
	held[held_count].lock = lock;
	held[held_count++].class = class_of(class, file, expression);
}

void lock_order_drop(const void *lock, int is_new)
{
	unsigned i = held_count;

	while (i && held[i - 1].lock != lock)
		i--;
	if (!i && !is_new)
		fail("a thread gives back what it does not hold", "?", "?");
	if (!i)
		return;
	for (; i < held_count; i++)
		held[i - 1] = held[i];
	held_count--;
}
