// A real holder with lives of a daemon that are functions of the test: what is deposited and
// forgotten while the holder is stopped, and when a life is killed in the middle. A life says by
// its exit code whether it found what it had to; what lives tell each other is in memory that they
// share.

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/holder/holder.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "tests/lib/suite.h"

#define MANY 3000
/* More than any socket takes. */
#define TOO_MANY   100000
#define FEW_FILES  200
#define LIVES_MOST 10
#define GOOD	   7

/* The holder may be stopped. */
#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                      \
			kill(getppid(), SIGCONT);                                                            \
			_exit(EXIT_FAILURE);                                                                 \
		}                                                                                            \
	} while (0)

/* By key: the file that is to be there; 0: none. */
static struct shared {
	ino_t files[TOO_MANY];
	uint32_t deposited, before;
	_Atomic int doomed;    /* a life that dies while its holder is stopped */
	_Atomic int no_room;   /* so many forks fail */
	_Atomic time_t passed; /* seconds that the test lets pass, while somebody sets the clock back */
} * shared;

typedef int life_fn(struct store *store, const struct legacy *legacy);
static life_fn *const *lives;

/*
 * In the place of the C library's
 */

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret_now);

	if (!r && shared)
		ret_now->tv_sec += clock == CLOCK_REALTIME ? -shared->passed : shared->passed;
	return r;
}

pid_t fork(void)
{
	pid_t (*original)(void) = (pid_t(*)(void))(uintptr_t)dlsym(RTLD_NEXT, "fork");

	if (!shared || !shared->no_room)
		return original();
	shared->no_room--;
	errno = EAGAIN;
	return -1;
}

time_t time(time_t *ret_now)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret_now)
		*ret_now = now.tv_sec;
	return now.tv_sec;
}

/*
 * What a life does
 */

/* Closing the last descriptor of such a file is what frees its memory. */
static int deposit_file(struct store *store, uint32_t *ret_key)
{
	int fd = memfd_create("deposit", MFD_CLOEXEC), r;
	struct stat status;

	must(fd >= 0 && fstat(fd, &status) == 0);
	r = store_deposit(store, fd, ret_key);
	close(fd);
	if (r)
		return r;
	must(*ret_key && *ret_key < TOO_MANY && !shared->files[*ret_key]);
	shared->files[*ret_key] = status.st_ino;
	shared->deposited++;
	return 0;
}

static void deposit_files(struct store *store, uint32_t count)
{
	uint32_t key;

	while (count--)
		must(deposit_file(store, &key) == 0);
}

static void forget_file(struct store *store, uint32_t key)
{
	if (!shared->files[key])
		return;
	shared->files[key] = 0;
	shared->deposited--;
	store_forget(store, key);
	store_commit(store);
}

static void forget_files(struct store *store, uint32_t left)
{
	for (uint32_t key = 1; key < TOO_MANY && shared->deposited > left; key++)
		forget_file(store, key);
}

static bool is_stopped(pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	must(file && fscanf(file, "%*d %*s %c", &state) == 1);
	fclose(file);
	return state == 'T';
}

static void stop_holder(void)
{
	must(kill(getppid(), SIGSTOP) == 0);
	while (!is_stopped(getppid()))
		sched_yield();
}

static void let_holder_go_on(void)
{
	must(kill(getppid(), SIGCONT) == 0);
}

static enum store_event hear(struct store *store)
{
	struct pollfd wait = {.fd = store_socket(store), .events = POLLIN};
	unsigned count;
	int status;
	pid_t pid;

	must(poll(&wait, 1, 60000) == 1);
	return store_hear(store, &pid, &status, &count);
}

static void sync_with_holder(struct store *store)
{
	must(store_sync(store));
	store_commit(store);
	must(hear(store) == STORE_SYNCED);
}

static uint32_t count_fds(pid_t pid)
{
	const struct dirent *entry;
	uint32_t count = 0;
	char path[64];
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	must(folder);
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

static void expect_kept(struct store *store, uint32_t count)
{
	sync_with_holder(store);
	must(count_fds(getppid()) == shared->before + count);
}

static int die(void)
{
	raise(SIGKILL);
	return EXIT_FAILURE;
}

/* The test lets the holder go on. */
static int die_behind_its_back(void)
{
	shared->doomed = getpid();
	return die();
}

/* The next life finds each file under its key, and no other. */
static int find_all(struct store *store, const struct legacy *legacy)
{
	for (uint32_t key = 1; key < TOO_MANY; key++) {
		int fd = store_take(store, key);
		struct stat status;

		must((fd >= 0) == (shared->files[key] != 0));
		if (fd < 0)
			continue;
		must(fstat(fd, &status) == 0 && status.st_ino == shared->files[key]);
		close(fd);
	}
	must(legacy->lives == 1);
	expect_kept(store, shared->deposited);
	forget_files(store, 0);
	expect_kept(store, 0);
	return GOOD;
}

/*
 * Frame
 */

static int run(void *context, const struct legacy *legacy)
{
	struct store *store = store_open(legacy);

	(void)context;
	must(store && legacy->lives < LIVES_MOST);
	store_up(store);
	/* Then the holder has closed what only this life is to have. */
	sync_with_holder(store);
	if (!legacy->lives)
		shared->before = count_fds(getppid());
	return lives[legacy->lives](store, legacy);
}

/* The holder is stopped, and would not read what there is to read before its daemon dies. */
static void await_doomed(pid_t holder)
{
	struct pollfd wait = {.events = POLLIN};
	siginfo_t ended = {0};

	while (!shared->doomed && !ended.si_pid) {
		ck_assert_int_eq(waitid(P_PID, (id_t)holder, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
		sched_yield();
	}
	ck_assert_int_eq(ended.si_pid, 0);
	wait.fd = (int)syscall(SYS_pidfd_open, shared->doomed, 0);
	ck_assert_int_ge(wait.fd, 0);
	ck_assert_int_eq(poll(&wait, 1, 60000), 1);
	close(wait.fd);
	ck_assert_int_eq(kill(holder, SIGCONT), 0);
}

static void run_lives(life_fn *const *functions, rlim_t files, bool doomed)
{
	struct rlimit limit;
	int status;
	pid_t pid;

	lives = functions;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	pid = fork();
	if (pid == 0) {
		log_init(LOG_LEVEL_ERROR, "test");
		getrlimit(RLIMIT_NOFILE, &limit);
		if (files)
			limit.rlim_cur = limit.rlim_max = files;
		setrlimit(RLIMIT_NOFILE, &limit);
		_exit(holder_run(run, NULL));
	}
	ck_assert_int_gt(pid, 0);
	if (doomed)
		await_doomed(pid);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), GOOD);
	munmap(shared, sizeof(*shared));
	shared = NULL;
}

/*
 * Tests
 */

static int forget_many(struct store *store, const struct legacy *legacy)
{
	(void)legacy;
	deposit_files(store, MANY);
	expect_kept(store, MANY);
	stop_holder();
	forget_files(store, 10);
	let_holder_go_on();
	expect_kept(store, 10);
	return die();
}

TEST(holder, what_is_forgotten_in_a_burst_is_closed)
{
	static life_fn *const both[] = {forget_many, find_all};

	run_lives(both, 0, false);
}

static int die_after_a_burst(struct store *store, const struct legacy *legacy)
{
	(void)legacy;
	deposit_files(store, MANY);
	expect_kept(store, MANY);
	stop_holder();
	forget_files(store, MANY / 2);
	/* Under keys that are somebody else's as far as the holder knows. */
	deposit_files(store, 100);
	forget_files(store, MANY / 2 + 50);
	deposit_files(store, 20);
	return die_behind_its_back();
}

TEST(holder, what_a_dead_daemon_had_forgotten_and_deposited_is_so_in_the_next_life)
{
	static life_fn *const both[] = {die_after_a_burst, find_all};

	run_lives(both, 0, true);
}

static int deposit_at_a_stopped_holder(struct store *store, const struct legacy *legacy)
{
	uint32_t key, sent;
	uint64_t begin_us;
	int r;

	(void)legacy;
	stop_holder();
	do {
		begin_us = timer_now_us();
		r = deposit_file(store, &key);
	} while (!r && shared->deposited < TOO_MANY);
	must(r == -EAGAIN && !key);
	must(timer_now_us() - begin_us < 10000000);
	/* The daemon stands still once. */
	begin_us = timer_now_us();
	for (int i = 0; i < 20; i++)
		must(deposit_file(store, &key) == -EAGAIN);
	must(timer_now_us() - begin_us < 10000000);
	sent = shared->deposited;
	let_holder_go_on();
	sync_with_holder(store);
	deposit_files(store, sent);
	expect_kept(store, 2 * sent);
	return die();
}

/* What is under the key is closed at once, not when the next one comes. */
static int mark_again(struct store *store, const struct legacy *legacy)
{
	uint32_t key, mark;

	must(deposit_file(store, &key) == 0);
	expect_kept(store, 1);
	stop_holder();
	forget_file(store, key);
	mark = word_relaxed(&legacy->board->marks[key]);
	word_release(&legacy->board->marks[key], mark + 1);
	let_holder_go_on();
	expect_kept(store, 0);
	return die();
}

TEST(holder, a_daemon_may_die_before_it_sends_what_it_has_marked)
{
	static life_fn *const both[] = {mark_again, find_all};

	run_lives(both, 0, false);
}

TEST(holder, a_holder_that_does_not_read_refuses)
{
	static life_fn *const both[] = {deposit_at_a_stopped_holder, find_all};

	run_lives(both, 0, false);
}

/* Whatever is on its way finds room. */
static int fill(struct store *store, const struct legacy *legacy)
{
	uint32_t key;

	(void)legacy;
	while (deposit_file(store, &key) == 0)
		;
	must(deposit_file(store, &key) == -EMFILE);
	must(shared->deposited == legacy->fds_most && legacy->fds_most < FEW_FILES);
	sync_with_holder(store);
	stop_holder();
	forget_files(store, 1);
	deposit_files(store, legacy->fds_most - 1);
	must(deposit_file(store, &key) == -EMFILE);
	return die_behind_its_back();
}

TEST(holder, a_holder_without_files_left_refuses_and_loses_nothing)
{
	static life_fn *const both[] = {fill, find_all};

	run_lives(both, FEW_FILES, true);
}

/* As the daemon's children are. */
static void end_a_child(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} how = {.flags = 0x00008000}; /* CLONE_PARENT */

	if (syscall(SYS_clone3, &how, sizeof(how)) == 0)
		_exit(0);
}

static int settle_two(struct store *store, const struct legacy *legacy)
{
	(void)legacy;
	for (int i = 0; i < 3; i++) {
		end_a_child();
		must(hear(store) == STORE_ENDED);
	}
	store_settle(store);
	store_commit(store);
	store_settle(store);
	store_commit(store);
	return die();
}

static int find_one_end(struct store *store, const struct legacy *legacy)
{
	must(legacy->end_count == 1);
	store_settle(store);
	store_commit(store);
	end_a_child();
	must(hear(store) == STORE_ENDED);
	return GOOD;
}

TEST(holder, ends_are_known_until_they_are_settled)
{
	static life_fn *const both[] = {settle_two, find_one_end};

	run_lives(both, 0, false);
}

static int make_a_large_file(struct store *store, const struct legacy *legacy)
{
	struct rlimit small = {.rlim_cur = 4096, .rlim_max = 4096};
	int fd = memfd_create("large", MFD_CLOEXEC);

	(void)store;
	(void)legacy;
	must(fd >= 0 && setrlimit(RLIMIT_FSIZE, &small) == 0);
	must(ftruncate(fd, 8192) < 0 && errno == EFBIG);
	return GOOD;
}

TEST(holder, a_file_that_may_not_be_so_large_is_an_error)
{
	static life_fn *const one[] = {make_a_large_file, make_a_large_file};

	run_lives(one, 0, false);
}

static int crash_each_hour(struct store *store, const struct legacy *legacy)
{
	(void)store;
	if (legacy->lives == LIVES_MOST - 1)
		return GOOD;
	shared->passed += 3600;
	raise(SIGUSR1);
	return EXIT_FAILURE;
}

TEST(holder, rare_crashes_do_not_end_the_service_where_the_clock_is_set_back)
{
	life_fn *all[LIVES_MOST];

	for (int i = 0; i < LIVES_MOST; i++)
		all[i] = crash_each_hour;
	run_lives(all, 0, false);
}

static int leave_no_room(struct store *store, const struct legacy *legacy)
{
	(void)legacy;
	deposit_files(store, 10);
	shared->no_room = 1;
	return die();
}

TEST(holder, where_there_is_no_room_for_a_daemon_it_is_awaited)
{
	static life_fn *const both[] = {leave_no_room, find_all};

	run_lives(both, 0, false);
}

int main(void)
{
	Suite *suite = suite_create("holder");
	TCase *tests = suite_case(suite, "holder");

	suite_add(tests, "holder");
	return suite_run(suite);
}
