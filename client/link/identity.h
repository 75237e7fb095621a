// The identity by which the service recognises this program in a later process: the executable, and
// the script if the executable is an interpreter. A program can fake another identity; the service
// uses the text only for matters among programs of the same user (Hello.identity). Runs on the
// thread that calls cuInit.

#ifndef FRMPS_CLIENT_LINK_IDENTITY_H
#define FRMPS_CLIENT_LINK_IDENTITY_H

#include <stddef.h>

#define IDENTITY_MAX	  512u
#define IDENTITY_NAME_MAX 256u

struct identity {
	/* Path of the executable; after a space the script, as a path if it is a file. The last 255
	 * bytes of each count. */
	char text[IDENTITY_MAX];
	/* For people: the name that the program was started with, and the script without its
	 * folder. */
	char name[IDENTITY_NAME_MAX];
};

/**
 * Describes the calling process; by its name alone if the system does not show its command line.
 */
void identity_describe(struct identity *ret_identity);

/**
 * Describes a program.
 * @executable: its path
 * @arguments: of the program, with the first; each ends with a NUL; @bytes: their total length
 */
void identity_of(const char *executable, const char *arguments, size_t bytes, struct identity *ret_identity);

#endif
