// See hollow.h. The handler reads a table without a lock, in any thread. The lock is for the two
// threads that change the table. A place is in use from the store of its begin on, which comes
// behind that of its end.

#include "server/executor/hollow.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

#include "shm/order.h"

#define PAGE	   UINT64_C(4096)
#define PLACES_MAX 4096u

static struct {
	word64 begin, end; /* begin 0: free */
} places[PLACES_MAX];
static word32 used; /* places behind this one have never been taken */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

static bool is_hollow(uint64_t address)
{
	uint32_t count = word_acquire(&used);

	for (uint32_t i = 0; i < count; i++) {
		/* Pairs with the release in hollow_add(). */
		uint64_t begin = word_acquire(&places[i].begin);

		if (begin && address >= begin && address < word_relaxed(&places[i].end))
			return true;
	}
	return false;
}

/* Return: true if the page is there now */
static bool fill(uint64_t address)
{
	void *page = (void *)(uintptr_t)(address / PAGE * PAGE);

	return mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       page;
}

/* Asynchronous, in any thread. */
static void on_bus(int number, siginfo_t *info, void *context)
{
	uint64_t address = (uintptr_t)info->si_addr;

	if (info->si_code == BUS_ADRERR && is_hollow(address) && fill(address))
		return;
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
		return;
	}
	/* The access comes again; a signal that a process sent does not. */
	sigaction(number, &before, NULL);
	if (info->si_code <= 0)
		raise(number);
}

static void watch(void)
{
	struct sigaction action = {.sa_sigaction = on_bus};

	if (sigaction(SIGBUS, NULL, &before))
		return;
	action.sa_mask = before.sa_mask;
	action.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK);
	sigaction(SIGBUS, &action, NULL);
}

void hollow_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch);
}

bool hollow_add(uint64_t address, uint64_t bytes)
{
	uint32_t i = 0, count;

	pthread_mutex_lock(&lock);
	count = word_relaxed(&used);
	while (i < count && word_relaxed(&places[i].begin))
		i++;
	if (i < PLACES_MAX) {
		word_set(&places[i].end, address + bytes);
		/* Pairs with the acquire in is_hollow(). */
		word_release(&places[i].begin, address);
		if (i == count)
			word_release(&used, count + 1);
	}
	pthread_mutex_unlock(&lock);
	return i < PLACES_MAX;
}

void hollow_remove(uint64_t address)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < word_relaxed(&used); i++)
		if (word_relaxed(&places[i].begin) == address)
			word_set(&places[i].begin, 0);
	pthread_mutex_unlock(&lock);
}
