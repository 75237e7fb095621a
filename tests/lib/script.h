// Programs that tests put in the place of the project's own.

#ifndef FRMPS_TESTS_LIB_SCRIPT_H
#define FRMPS_TESTS_LIB_SCRIPT_H

/** Makes a shell script that can be run. @path: a template of mkstemp(), and then its name; the
 * caller unlinks it */
void script_make(char *path, const char *script);

#endif
