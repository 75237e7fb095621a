// See process.h.

#include "server/tools/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "server/grow.h"
#include "server/search.h"

/* A step of /proc/PID/stat from child to parent; more is no chain of this machine. */
#define ANCESTORS_MOST 1000u

struct mapping {
	uint64_t start, end, inode;
	unsigned major, minor;
	bool is_shared;
};

struct process_maps {
	struct process_maps *next;
	pid_t pid;
	struct mapping *at; /* by address */
	uint32_t count, room;
	const struct mapping **files; /* the shared ones, by inode */
	size_t file_count;
};

/* @text: a line of /proc/PID/maps. Return: false if it cannot be read */
static bool read_line(const char *text, struct mapping *mapping)
{
	char flags[5];

	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %*x %x:%x %" SCNu64, &mapping->start, &mapping->end,
		    flags, &mapping->major, &mapping->minor, &mapping->inode) != 6)
		return false;
	mapping->is_shared = flags[3] == 's';
	return true;
}

/* Return: false without memory */
static bool add(struct process_maps *maps, const struct mapping *mapping)
{
	if (!grow(&maps->at, maps->count, &maps->room, sizeof(*maps->at)))
		return false;
	maps->at[maps->count++] = *mapping;
	return true;
}

static int compare_inodes(const void *left, const void *right)
{
	const struct mapping *a = *(const struct mapping *const *)left;
	const struct mapping *b = *(const struct mapping *const *)right;

	return (a->inode > b->inode) - (a->inode < b->inode);
}

/* Return: false without memory */
static bool sort_files(struct process_maps *maps)
{
	maps->files = calloc(maps->count + 1, sizeof(*maps->files));
	if (!maps->files)
		return false;
	for (size_t i = 0; i < maps->count; i++)
		if (maps->at[i].is_shared)
			maps->files[maps->file_count++] = &maps->at[i];
	qsort(maps->files, maps->file_count, sizeof(*maps->files), compare_inodes);
	return true;
}

static bool read_all(struct process_maps *maps, FILE *file)
{
	struct mapping mapping;
	char *text = NULL;
	size_t room = 0;
	bool done = true;

	while (done && getline(&text, &room, file) > 0)
		done = !read_line(text, &mapping) || add(maps, &mapping);
	free(text);
	return done && sort_files(maps);
}

static struct process_maps *read_maps(pid_t pid)
{
	struct process_maps *maps;
	char path[40];
	FILE *file;
	bool done;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	maps = file ? calloc(1, sizeof(*maps)) : NULL;
	done = maps && read_all(maps, file);
	if (file)
		fclose(file);
	if (done) {
		maps->pid = pid;
		return maps;
	}
	process_free_maps(maps);
	return NULL;
}

const struct process_maps *process_maps_of(struct process_maps **list, pid_t pid)
{
	struct process_maps *maps = *list;

	while (maps && maps->pid != pid)
		maps = maps->next;
	if (maps)
		return maps;
	maps = read_maps(pid);
	if (maps) {
		maps->next = *list;
		*list = maps;
	}
	return maps;
}

void process_free_maps(struct process_maps *list)
{
	struct process_maps *next;

	for (; list; list = next) {
		next = list->next;
		free(list->files);
		free(list->at);
		free(list);
	}
}

uint64_t process_find_mapping(const struct process_maps *maps, const struct stat *file)
{
	size_t low = 0, high = maps->file_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (maps->files[middle]->inode < file->st_ino)
			low = middle + 1;
		else
			high = middle;
	}
	/* Several devices may have a file of this number. */
	for (; low < maps->file_count && maps->files[low]->inode == file->st_ino; low++)
		if (maps->files[low]->major == major(file->st_dev) &&
			maps->files[low]->minor == minor(file->st_dev))
			return maps->files[low]->start;
	return 0;
}

int process_open_mapping(const struct process_maps *maps, uint64_t address)
{
	const uint32_t low = search_above(
		maps->at, maps->count, sizeof(*maps->at), offsetof(struct mapping, end), address);
	char path[100];
	int fd;

	if (low == maps->count || maps->at[low].start > address)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)maps->pid,
		maps->at[low].start, maps->at[low].end);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * Descriptors
 */

/* A line of a descriptor's description. Return: false if there is none */
static bool describe(pid_t pid, int number, const char *name, long long *ret_value)
{
	char path[64], *text = NULL;
	const size_t length = strlen(name);
	size_t room = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)pid, number);
	file = fopen(path, "re");
	while (file && !found && getline(&text, &room, file) > 0)
		if (!strncmp(text, name, length)) {
			*ret_value = strtoll(text + length, NULL, 0);
			found = true;
		}
	free(text);
	if (file)
		fclose(file);
	return found;
}

typedef bool is_it_fn(pid_t pid, int number, const void *context);

/* Return: number of the first descriptor that it is, or -1 */
static int find_descriptor(pid_t pid, is_it_fn *is_it, const void *context)
{
	const struct dirent *entry;
	int found = -1;
	char path[40];
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	while (folder && found < 0 && (entry = readdir(folder))) {
		const int number = atoi(entry->d_name);

		if (*entry->d_name != '.' && is_it(pid, number, context))
			found = number;
	}
	if (folder)
		closedir(folder);
	return found;
}

static bool is_event(pid_t pid, int number, const void *context)
{
	long long id;

	return describe(pid, number, "eventfd-id:", &id) && id == *(const long long *)context;
}

int process_find_event(pid_t pid, int event)
{
	long long id;

	return describe(getpid(), event, "eventfd-id:", &id) ? find_descriptor(pid, is_event, &id) : -1;
}

/* Finds the file of a descriptor. Return: false if the kernel does not show that file */
static bool read_link(pid_t pid, int number, char *ret_text, size_t size)
{
	char path[64];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
	length = readlink(path, ret_text, size - 1);
	ret_text[length > 0 ? length : 0] = '\0';
	return length > 0;
}

static bool is_socket(pid_t pid, int number, const void *context)
{
	char text[64], wanted[40];

	snprintf(wanted, sizeof(wanted), "socket:[%" PRIu64 "]", *(const uint64_t *)context);
	return read_link(pid, number, text, sizeof(text)) && !strcmp(text, wanted);
}

int process_find_socket(pid_t pid, uint64_t inode)
{
	return find_descriptor(pid, is_socket, &inode);
}

int process_open(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

pid_t process_of(int pidfd)
{
	long long pid;

	return describe(getpid(), pidfd, "Pid:", &pid) && pid > 0 ? (pid_t)pid : 0;
}

int process_take(pid_t pid, int number)
{
	int pidfd = process_open(pid), fd;

	if (pidfd < 0)
		return pidfd;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	fd = fd < 0 ? -errno : fd;
	close(pidfd);
	return fd;
}

/*
 * The other end of a socket
 */

/* Return: false if the kernel does not say it */
static bool ask_about(int netlink, uint64_t inode)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req body;
	} question = {.head = {.nlmsg_len = sizeof(question),
			      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			      .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = AF_UNIX,
			.udiag_states = ~0u,
			.udiag_ino = (uint32_t)inode,
			.udiag_show = UDIAG_SHOW_PEER,
			/* Any. */
			.udiag_cookie = {~0u, ~0u}}};

	return send(netlink, &question, sizeof(question), 0) == (ssize_t)sizeof(question);
}

static uint64_t peer_in(const uint8_t *answer, size_t bytes)
{
	const struct nlmsghdr *head = (const void *)answer;
	size_t at = NLMSG_LENGTH(sizeof(struct unix_diag_msg));
	uint32_t inode;

	if (bytes < at || head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len > bytes)
		return 0;
	while (at + sizeof(struct nlattr) <= head->nlmsg_len) {
		const struct nlattr *field = (const void *)(answer + at);

		if (field->nla_len < sizeof(*field) || field->nla_len > head->nlmsg_len - at)
			return 0;
		if (field->nla_type == UNIX_DIAG_PEER && field->nla_len >= sizeof(*field) + sizeof(inode)) {
			memcpy(&inode, field + 1, sizeof(inode));
			return inode;
		}
		at += NLA_ALIGN(field->nla_len);
	}
	return 0;
}

uint64_t process_peer(int socket_fd)
{
	_Alignas(8) uint8_t answer[512];
	struct stat status;
	uint64_t inode = 0;
	ssize_t got;
	int netlink;

	if (fstat(socket_fd, &status) < 0 || !S_ISSOCK(status.st_mode))
		return 0;
	netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (netlink < 0)
		return 0;
	if (ask_about(netlink, status.st_ino)) {
		got = recv(netlink, answer, sizeof(answer), 0);
		inode = got > 0 ? peer_in(answer, (size_t)got) : 0;
	}
	close(netlink);
	return inode;
}

/*
 * Descendants
 */

/* Return: 0: there is none */
static pid_t parent_of(pid_t pid)
{
	char path[40], text[512] = "";
	const char *behind;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* A program's name may have blanks and brackets. */
	behind = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
	if (!behind || sscanf(behind + 1, " %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	return parent;
}

bool process_is_within(pid_t pid, pid_t root)
{
	for (unsigned i = 0; pid && pid != root && i < ANCESTORS_MOST; i++)
		pid = parent_of(pid);
	return pid == root;
}

void process_hold_signals(sigset_t *ret_before)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
	sigset_t held;

	sigemptyset(&held);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&held, numbers[i]);
	sigprocmask(SIG_BLOCK, &held, ret_before);
}

bool process_is_interrupted(void)
{
	sigset_t pending;

	return !sigpending(&pending) && (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM));
}

/* A process and all its descendants, the caller's. */
struct tree {
	pid_t *pids;
	size_t count;
};

static bool add_to_tree(struct tree *tree, pid_t pid)
{
	pid_t *larger = reallocarray(tree->pids, tree->count + 1, sizeof(*larger));

	if (!larger)
		return false;
	tree->pids = larger;
	larger[tree->count++] = pid;
	return true;
}

/* @thread: number of one of its threads */
static bool add_children(struct tree *tree, pid_t pid, const char *thread)
{
	char path[80];
	bool fits = true;
	FILE *file;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid, thread);
	file = fopen(path, "re");
	while (file && fits && fscanf(file, "%d", &child) == 1)
		fits = add_to_tree(tree, child);
	if (file)
		fclose(file);
	return fits;
}

static bool add_children_of_all(struct tree *tree, pid_t pid)
{
	const struct dirent *entry;
	bool fits = true;
	char path[40];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	while (threads && fits && (entry = readdir(threads)))
		if (entry->d_name[0] != '.')
			fits = add_children(tree, pid, entry->d_name);
	if (threads)
		closedir(threads);
	return fits;
}

static struct tree tree_of(pid_t root)
{
	struct tree tree = {0};
	bool fits = add_to_tree(&tree, root);

	for (size_t i = 0; fits && i < tree.count; i++)
		fits = add_children_of_all(&tree, tree.pids[i]);
	return tree;
}

/* All of them are known before the first gets the signal, after which its children may be another
 * one's. */
void process_signal_tree(pid_t root, int number)
{
	struct tree tree = tree_of(root);

	for (size_t i = 0; i < tree.count; i++)
		kill(tree.pids[i], number);
	free(tree.pids);
}

static bool has_path(pid_t pid, int number, const void *context)
{
	const char *beginning = context;
	char text[1000];

	return read_link(pid, number, text, sizeof(text)) && !strncmp(text, beginning, strlen(beginning));
}

bool process_tree_opens(pid_t root, const char *beginning)
{
	struct tree tree = tree_of(root);
	bool found = false;

	for (size_t i = 0; !found && i < tree.count; i++)
		found = find_descriptor(tree.pids[i], has_path, beginning) >= 0;
	free(tree.pids);
	return found;
}
