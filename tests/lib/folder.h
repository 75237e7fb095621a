// A folder in which a test works. One at a time in a process; what fails ends the test.

#ifndef FRMPS_TESTS_LIB_FOLDER_H
#define FRMPS_TESTS_LIB_FOLDER_H

/** Makes the folder, under /tmp, and goes there. Return: its path, valid until folder_leave() */
char *folder_enter(void);
/** The same for a test that writes much, which a disk would take long for while other tests wait:
 * in memory, where there is room. Nothing is executed there. */
char *folder_enter_in_memory(void);
/** Removes it, with all that is in it. */
void folder_leave(void);
/** Runs a line of shell, which must succeed. */
void folder_shell(const char *line);
/** Puts a library there that passes for the shim. @path: in an existing folder; @before: its first
 * bytes */
void folder_put_shim(const char *path, const char *before);

#endif
