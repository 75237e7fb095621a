// Other processes, as a tool sees them: children that have mappings, descriptors and children of
// their own.

#include "server/tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/suite.h"

#define PAGE 4096u
#define SIZE (4 * PAGE)
/* Of no process. */
#define NOBODY (1 << 30)

/* A process that has said something, and waits. */
struct other {
	pid_t pid;
	int says, hears; /* the test's ends */
};

/* What a process does before it waits. @says: for what the test learns of it */
typedef void do_fn(int says);

static void say(int says, uint64_t what)
{
	if (write(says, &what, sizeof(what)) != (ssize_t)sizeof(what))
		_exit(2);
}

static uint64_t hear(const struct other *other)
{
	uint64_t what = 0;

	ck_assert_int_eq(read(other->says, &what, sizeof(what)), (ssize_t)sizeof(what));
	return what;
}

/* Ends once the test has closed its end, or has ended. */
static void wait_for_end(int hears)
{
	char byte;

	_exit(read(hears, &byte, 1) == 0 ? 0 : 3);
}

static struct other begin(do_fn *act)
{
	struct other other;
	int up[2], down[2];

	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	other = (struct other){.pid = fork(), .says = up[0], .hears = down[1]};
	ck_assert_int_ge(other.pid, 0);
	if (!other.pid) {
		close(up[0]);
		close(down[1]);
		act(up[1]);
		wait_for_end(down[0]);
	}
	close(up[1]);
	close(down[0]);
	return other;
}

static int status_of(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static void leave(const struct other *other)
{
	close(other->says);
	close(other->hears);
}

static void end(const struct other *other)
{
	leave(other);
	ck_assert_int_eq(status_of(other->pid), 0);
}

static struct stat status_for(int fd)
{
	struct stat status;

	ck_assert_int_eq(fstat(fd, &status), 0);
	return status;
}

static bool is_same_file(int fd, int other)
{
	const struct stat one = status_for(fd), two = status_for(other);

	return one.st_ino == two.st_ino && one.st_dev == two.st_dev;
}

/*
 * Mappings
 */

static int shared, private, unmapped;

static int make_file(void)
{
	int fd = memfd_create("file (deleted)\n", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	return fd;
}

/* Of the shared one, all but the first page. */
static void map_files(int says)
{
	void *at = mmap(NULL, SIZE - PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, shared, PAGE);

	mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, private, 0);
	/* It has no descriptor of what it has mapped. */
	close(shared);
	close(private);
	close(unmapped);
	say(says, (uintptr_t)at);
}

static void make_files(void)
{
	shared = make_file();
	private = make_file();
	unmapped = make_file();
}

static void close_files(void)
{
	close(shared);
	close(private);
	close(unmapped);
}

static uint64_t find(pid_t pid, int fd)
{
	const struct stat status = status_for(fd);
	struct process_maps *list = NULL;
	const struct process_maps *maps = process_maps_of(&list, pid);
	uint64_t address;

	ck_assert_ptr_nonnull(maps);
	ck_assert_ptr_eq(process_maps_of(&list, pid), maps);
	address = process_find_mapping(maps, &status);
	process_free_maps(list);
	return address;
}

TEST(mappings, a_shared_one_is_found_by_its_file)
{
	struct process_maps *none = NULL;
	struct other other = begin(map_files);
	const uint64_t address = hear(&other);

	ck_assert_uint_eq(find(other.pid, shared), address);
	ck_assert_uint_eq(find(other.pid, private), 0);
	ck_assert_uint_eq(find(other.pid, unmapped), 0);
	ck_assert_uint_eq(find(getpid(), shared), 0);
	ck_assert_ptr_null(process_maps_of(&none, NOBODY));
	ck_assert_ptr_null(none);
	end(&other);
}

TEST(mappings, their_files_are_opened)
{
	struct other other = begin(map_files);
	const uint64_t address = hear(&other);
	struct process_maps *list = NULL;
	const struct process_maps *maps = process_maps_of(&list, other.pid);
	int fd, byte;

	ck_assert_ptr_nonnull(maps);
	fd = process_open_mapping(maps, address);

	/* Some containers' root may not. */
	if (fd != -EPERM) {
		ck_assert_int_ge(fd, 0);
		ck_assert(is_same_file(fd, shared));
		ck_assert_int_eq(pwrite(fd, "x", 1, PAGE), 1);
		ck_assert_int_eq(pread(shared, &byte, 1, PAGE), 1);
		ck_assert_int_eq((char)byte, 'x');
		close(fd);
		fd = process_open_mapping(maps, address + SIZE - PAGE - 1);
		ck_assert_int_ge(fd, 0);
		ck_assert(is_same_file(fd, shared));
		close(fd);
	}
	ck_assert_int_eq(process_open_mapping(maps, 0), -ENOENT);
	ck_assert_int_eq(process_open_mapping(maps, UINT64_MAX), -ENOENT);
	process_free_maps(list);
	end(&other);
}

/*
 * Descriptors
 */

static int event, other_event, ends[2];

/* One event, and one end of the socket, at other numbers than here. */
static void keep_some(int says)
{
	int own_event = fcntl(event, F_DUPFD, 200), own_end = fcntl(ends[1], F_DUPFD, 300);

	close(event);
	close(other_event);
	close(ends[0]);
	close(ends[1]);
	say(says, (uint64_t)own_event);
	say(says, (uint64_t)own_end);
}

static struct other holder;
static int event_there, end_there;

static void make_descriptors(void)
{
	event = eventfd(0, EFD_CLOEXEC);
	other_event = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	holder = begin(keep_some);
	event_there = (int)hear(&holder);
	end_there = (int)hear(&holder);
}

static void lose_holder(void)
{
	if (holder.pid)
		end(&holder);
	holder.pid = 0;
}

static void close_descriptors(void)
{
	lose_holder();
	close(event);
	close(other_event);
	close(ends[0]);
	if (ends[1] >= 0)
		close(ends[1]);
}

TEST(descriptors, an_event_is_found)
{
	ck_assert_int_eq(process_find_event(holder.pid, event), event_there);
	ck_assert_int_eq(process_find_event(holder.pid, other_event), -1);
	ck_assert_int_eq(process_find_event(getpid(), other_event), other_event);
	ck_assert_int_eq(process_find_event(NOBODY, event), -1);
	/* No event, and no descriptor. */
	ck_assert_int_eq(process_find_event(holder.pid, ends[0]), -1);
	ck_assert_int_eq(process_find_event(holder.pid, -1), -1);
}

TEST(descriptors, the_other_end_of_a_socket_is_found)
{
	const struct stat status = status_for(ends[1]);

	/* The process alone has it. */
	close(ends[1]);
	ends[1] = -1;
	ck_assert_uint_eq(process_peer(ends[0]), status.st_ino);
	ck_assert_int_eq(process_find_socket(holder.pid, status.st_ino), end_there);
	ck_assert_int_eq(process_find_socket(holder.pid, status_for(ends[0]).st_ino), -1);
	ck_assert_int_eq(process_find_socket(NOBODY, status.st_ino), -1);
	lose_holder();
	/* Nobody has it. */
	ck_assert_uint_eq(process_peer(ends[0]), 0);
}

TEST(descriptors, others_have_no_other_end)
{
	int alone = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), inet = socket(AF_INET, SOCK_DGRAM, 0);

	ck_assert_uint_eq(process_peer(alone), 0);
	ck_assert_uint_eq(process_peer(inet), 0);
	ck_assert_uint_eq(process_peer(event), 0);
	ck_assert_uint_eq(process_peer(-1), 0);
	close(alone);
	if (inet >= 0)
		close(inet);
}

TEST(descriptors, a_copy_is_taken)
{
	int fd = process_take(holder.pid, event_there);
	eventfd_t count = 0;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(eventfd_write(fd, 7), 0);
	ck_assert_int_eq(eventfd_read(event, &count), 0);
	ck_assert_uint_eq(count, 7);
	close(fd);
	ck_assert_int_eq(process_take(holder.pid, event_there + 1), -EBADF);
	ck_assert_int_eq(process_take(holder.pid, -1), -EBADF);
	ck_assert_int_eq(process_take(NOBODY, event_there), -ESRCH);
}

TEST(descriptors, a_process_has_one)
{
	int pidfd = process_open(holder.pid);

	ck_assert_int_ge(pidfd, 0);
	ck_assert_int_eq(process_of(pidfd), holder.pid);
	ck_assert_int_eq(process_of(event), 0);
	ck_assert_int_eq(process_of(-1), 0);
	lose_holder();
	ck_assert_int_eq(process_of(pidfd), 0);
	close(pidfd);
	ck_assert_int_eq(process_open(NOBODY), -ESRCH);
}

/*
 * Descendants
 */

static void wait_here(int says)
{
	say(says, 1);
}

/* It waits for its child's end, by a signal. A name like that would make the first process its
 * parent's child. */
static void have_child(int says)
{
	pid_t child;

	prctl(PR_SET_NAME, ") R 1 1 (");
	child = fork();
	if (child)
		say(says, (uint64_t)child);
	else
		prctl(PR_SET_NAME, "))) S 1");
	for (;;)
		pause();
}

static void adopt_orphans(void)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

static void nothing(void)
{
}

TEST(descendants, they_are_within_the_root)
{
	struct other root = begin(have_child), other = begin(wait_here);
	const pid_t child = (pid_t)hear(&root);

	hear(&other);
	ck_assert(process_is_within(root.pid, root.pid));
	ck_assert(process_is_within(child, root.pid));
	ck_assert(process_is_within(child, getpid()));
	ck_assert(!process_is_within(root.pid, child));
	ck_assert(!process_is_within(other.pid, root.pid));
	ck_assert(!process_is_within(getpid(), root.pid));
	ck_assert(!process_is_within(NOBODY, root.pid));
	process_signal_tree(root.pid, SIGKILL);
	ck_assert_int_eq(status_of(root.pid), SIGKILL);
	ck_assert_int_eq(status_of(child), SIGKILL);
	leave(&root);
	end(&other);
}

/* The others get none. */
TEST(descendants, all_get_a_signal)
{
	struct other other = begin(wait_here), root = begin(have_child);
	const pid_t child = (pid_t)hear(&root);

	process_signal_tree(root.pid, SIGUSR1);
	ck_assert_int_eq(status_of(root.pid), SIGUSR1);
	ck_assert_int_eq(status_of(child), SIGUSR1);
	leave(&root);
	ck_assert_uint_eq(hear(&other), 1);
	end(&other);
	/* Nobody is there any more. */
	process_signal_tree(root.pid, SIGKILL);
}

/* Tells that it has a file open, which its parent has not. */
static void have_file(int says)
{
	if (!fork()) {
		say(says, (uint64_t)open("/dev/full", O_RDWR));
		pause();
		_exit(0);
	}
}

TEST(descendants, their_open_files_are_found)
{
	struct other root = begin(have_file), other = begin(wait_here);

	hear(&other);
	ck_assert_uint_gt(hear(&root), 2);
	ck_assert(process_tree_opens(root.pid, "/dev/fu"));
	ck_assert(!process_tree_opens(root.pid, "/dev/fun"));
	ck_assert(!process_tree_opens(root.pid, "dev/full"));
	ck_assert(!process_tree_opens(other.pid, "/dev/fu"));
	ck_assert(!process_tree_opens(NOBODY, "/dev/fu"));
	process_signal_tree(root.pid, SIGKILL);
	leave(&root);
	end(&other);
}

/* This process ends only when it may. */
TEST(descendants, signals_wait_for_the_tool)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
	sigset_t before, after, waiting;

	process_hold_signals(&before);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		raise(numbers[i]);
	sigpending(&waiting);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		ck_assert(sigismember(&waiting, numbers[i]));
		signal(numbers[i], SIG_IGN);
	}
	sigprocmask(SIG_SETMASK, &before, &after);
	ck_assert(sigismember(&after, SIGTERM) && !sigismember(&before, SIGTERM));
}

int main(void)
{
	Suite *suite = suite_create("process");
	TCase *mappings = suite_case(suite, "mappings"), *descriptors = suite_case(suite, "descriptors"),
	      *descendants = suite_case(suite, "descendants");

	tcase_add_checked_fixture(mappings, make_files, close_files);
	tcase_add_checked_fixture(descriptors, make_descriptors, close_descriptors);
	tcase_add_checked_fixture(descendants, adopt_orphans, nothing);
	suite_add(mappings, "mappings");
	suite_add(descriptors, "descriptors");
	suite_add(descendants, "descendants");
	return suite_run(suite);
}
