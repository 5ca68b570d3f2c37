# LevelDB 1.22 asks whether the compiler has clang's thread-safety warnings, and believes that every compiler has.
set(HAVE_CLANG_THREAD_SAFETY OFF CACHE BOOL "")
