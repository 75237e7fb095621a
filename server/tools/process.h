// What a tool of root sees and takes of another process: mappings, descriptors, the children. The
// process stands still meanwhile. Linux. Any thread.

#ifndef FRMPS_SERVER_TOOLS_PROCESS_H
#define FRMPS_SERVER_TOOLS_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* The mappings of a process, in a list of such processes. */
struct process_maps;

/**
 * Reads the mappings of a process, unless the list has them.
 * @list: NULL at first; for process_free_maps()
 * Return: the list's; NULL: there is no such process, or no memory
 */
const struct process_maps *process_maps_of(struct process_maps **list, pid_t pid);
void process_free_maps(struct process_maps *list);
/** Finds a shared mapping of a file. Return: its address; 0: there is none */
uint64_t process_find_mapping(const struct process_maps *maps, const struct stat *file);
/** Opens the file of the mapping at an address. Return: the caller's; -errno */
int process_open_mapping(const struct process_maps *maps, uint64_t address);

/** Finds the process's descriptor of an eventfd. Return: its number; -1: there is none */
int process_find_event(pid_t pid, int event);
/** Finds the process's descriptor of a socket. Return: its number; -1: there is none */
int process_find_socket(pid_t pid, uint64_t inode);
/** Takes a copy of a descriptor. Return: the caller's; -errno */
int process_take(pid_t pid, int number);

/** Return: a pidfd, the caller's; -errno */
int process_open(pid_t pid);
/** Return: the process of a pidfd; 0: this is none, or it has ended */
pid_t process_of(int pidfd);

/** Inode of the socket at the other end of a unix socket. Return: 0: not to be found out */
uint64_t process_peer(int socket);

/**
 * Keeps the signals of a terminal and of kill(1) for later, so that nothing ends this process while
 * others are stopped. @ret_before: for sigprocmask()
 */
void process_hold_signals(sigset_t *ret_before);
/** True if somebody wants to end this process meanwhile. */
bool process_is_interrupted(void);
/** Sends a signal to a process and all its descendants. */
void process_signal_tree(pid_t root, int signal);
/** True if the process or a descendant has a file open whose path begins so. */
bool process_tree_opens(pid_t root, const char *beginning);
/** True if the process is the root, or a descendant. */
bool process_is_within(pid_t pid, pid_t root);

#endif
