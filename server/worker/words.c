// See words.h.

#include "server/worker/words.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/holder/store.h"
#include "server/worker/crew.h"
#include "server/worker/worker.h"

#define PAGE_BYTES (LAST_WORDS_MAX * sizeof(struct last_words))

int words_map(struct worker *worker, int fd)
{
	void *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return -errno;
	worker->words = page;
	return 0;
}

int words_make(struct worker *worker, int *ret_fd)
{
	int fd = memfd_create("frmps-last-words", MFD_CLOEXEC | MFD_ALLOW_SEALING), r = 0;

	if (fd < 0)
		return -errno;
	/* The executor has the file as well, and must not take a page away that the daemon
	 * reads. */
	if (ftruncate(fd, (off_t)PAGE_BYTES) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		r = -errno;
	r = r ? r : words_map(worker, fd);
	r = r ? r : store_deposit(worker->crew->store, fd, &worker->words_key);
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

void words_unmap(struct worker *worker)
{
	if (worker->words)
		munmap(worker->words, PAGE_BYTES);
	worker->words = NULL;
}

void words_read(const struct worker *worker, struct last_words *ret_words)
{
	if (!worker->words) {
		memset(ret_words, 0, PAGE_BYTES);
		return;
	}
	memcpy(ret_words, worker->words, PAGE_BYTES);
	for (uint32_t i = 0; i < LAST_WORDS_MAX; i++)
		if (ret_words[i].fault && ret_words[i].fault <= worker->settled)
			ret_words[i].magic = 0;
}

void words_settle(struct worker *worker, uint32_t number)
{
	if (number > worker->settled)
		worker->settled = number;
}

bool words_is_crash(int signal)
{
	return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
	       signal == SIGABRT || signal == SIGTRAP;
}

bool words_is_unexplained(const struct worker *worker)
{
	struct last_words words[LAST_WORDS_MAX];
	bool named = false;

	words_read(worker, words);
	for (uint32_t i = 0; i < LAST_WORDS_MAX; i++)
		named |= words[i].magic == LAST_WORDS_MAGIC && words[i].session;
	return words_is_crash(worker->exit_signal) && !named;
}
